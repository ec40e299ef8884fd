"""The house rules that a script can check: sizes, leftovers, the seam, fresh documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("raftctl", "broker", "jepsen", "tests")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500

# Where the world may be touched: the real runtime, the commands people run, the simulated world.
OUTSIDE_THE_SEAM = (
    "raftctl/runtime/real.py",
    "raftctl/runtime/real_sending.py",
    "raftctl/runtime/memory.py",
    "raftctl/cli/",
    "raftctl/bench/",
    "raftctl/localcluster/",
    "jepsen/",
    "tests/",
)
FORBIDDEN_MODULES = {"os", "time", "threading", "secrets", "socket", "subprocess", "tempfile"}
FORBIDDEN_CALLS = re.compile(r"^(open|print|input|uuid\.uuid[14]|uuid[14])$")
GLOBAL_RANDOM = re.compile(r"^random\.(?!Random$)\w+$")


@cache
def sources() -> list[tuple[str, str]]:
    files = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    return [(str(p.relative_to(ROOT)), p.read_text()) for p in files]


def production() -> list[tuple[str, str]]:
    return [(n, t) for n, t in sources() if not n.startswith(OUTSIDE_THE_SEAM)]


def test_files_and_functions_are_small() -> None:
    found = []
    for name, text in sources():
        if text.count("\n") > FILE_LINES_MAX:
            found.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    found.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    assert found == []


def test_every_module_says_its_role() -> None:
    silent = [n for n, t in sources() if t.strip() and ast.get_docstring(ast.parse(t)) is None]
    assert silent == []


def test_public_functions_and_classes_of_the_product_are_documented() -> None:
    silent = []
    for name, text in sources():
        if name.startswith("tests/"):
            continue
        for owner in ast.walk(ast.parse(text)):
            if not isinstance(owner, ast.Module | ast.ClassDef):
                continue
            for node in owner.body:
                if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if not node.name.startswith("_") and ast.get_docstring(node) is None:
                    silent.append(f"{name}:{node.lineno} {node.name}")
    assert silent == []


def test_nothing_is_left_for_later() -> None:
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")
    left = [n for n, t in sources() if words.search(t)]
    assert left == []


def test_no_check_is_silenced() -> None:
    silencers = re.compile(r"#\s*(no" + r"qa|type:\s*ignore|mypy:\s*ignore|pragma:)")
    assert [name for name, text in sources() if silencers.search(text)] == []


def _calls_and_imports(text: str) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, f"import {a.name}") for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, f"import {node.module}"))
        elif isinstance(node, ast.Call):
            found.append((node.lineno, ast.unparse(node.func)))
    return found


def test_nodes_reach_the_world_through_the_seam_only() -> None:
    reached = []
    for name, text in production():
        # Where `random` is the name of an argument, the module is imported for its types at most.
        global_random = re.search(r"^import random$", text, flags=re.MULTILINE) is not None
        for line, what in _calls_and_imports(text):
            module = what.removeprefix("import ").partition(".")[0]
            imported = what.startswith("import ") and module in FORBIDDEN_MODULES
            by_chance = global_random and GLOBAL_RANDOM.match(what)
            if imported or by_chance or FORBIDDEN_CALLS.match(what):
                reached.append(f"{name}:{line} {what}")
    assert reached == []


def test_no_process_global_state() -> None:
    """A module-level list, dict or set in lower case is state that several nodes would share."""
    found = []
    for name, text in production():
        for node in ast.parse(text).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            if not isinstance(node.value, ast.List | ast.Dict | ast.Set):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [ast.unparse(t) for t in targets]
            found += [f"{name}:{node.lineno} {n}" for n in names if n.lstrip("_").islower()]
    assert [f for f in found if "__all__" not in f] == []


@pytest.mark.parametrize("page", sorted(p.name for p in ROOT.glob("docs/**/*.md")))
def test_one_title_a_page(page: str) -> None:
    path = next(ROOT.glob(f"docs/**/{page}"))
    outside_code = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    assert len(re.findall(r"^# ", outside_code, flags=re.MULTILINE)) == 1


@pytest.mark.parametrize(
    "tool", ["raftctl.cli.reference", "tests.jepsen_reference", "tests.requirements"]
)
def test_generated_documents_are_fresh(tool: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", tool, "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
