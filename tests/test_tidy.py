"""The house rules that a script can check: sizes, leftovers, the seam, fresh documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import words
from tests.prose import long_sentences
from tests.unit.conftest import SLOW

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("raftctl", "broker", "jepsen", "tests")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
ARCHITECTURE_LINES_MAX = 200

# Where the world may be touched: the real runtime, the commands people run, the simulated world.
OUTSIDE_THE_SEAM = (
    "raftctl/runtime/real.py",
    "raftctl/runtime/_memory.py",
    "raftctl/runtime/_slices.py",
    "raftctl/runtime/lease_clock.py",
    "raftctl/security/tls/_anonymous.py",
    "raftctl/cli/",
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


class Method(NamedTuple):
    line: int
    name: str
    of_class: str


class Class(NamedTuple):
    bases: set[str]
    documented: set[str]
    """Names of methods."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rules need to know of a file, so that each is parsed once."""

    long_functions: list[str]
    has_docstring: bool
    undocumented: list[str]
    """Public functions and classes."""
    undocumented_methods: list[Method]
    """Public methods, which may have the documentation of a base class."""
    classes: dict[str, Class]
    """By name."""


@cache
def shapes() -> dict[str, Shape]:
    return {name: shape(ast.parse(text)) for name, text in sources()}


def shape(module: ast.Module) -> Shape:
    long_functions: list[str] = []
    undocumented: list[str] = []
    methods: list[Method] = []
    classes: dict[str, Class] = {}
    for node in statements(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                long_functions.append(f"{node.lineno} {node.name}: {lines} lines")
        if not isinstance(node, ast.Module | ast.ClassDef):
            continue
        found = [
            one
            for one in node.body
            if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if not one.name.startswith("_")
        ]
        silent = [one for one in found if ast.get_docstring(one) is None]
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
            classes[node.name] = Class(bases, {one.name for one in found if one not in silent})
            methods += [Method(one.lineno, one.name, node.name) for one in silent]
        else:
            undocumented += [f"{one.lineno} {one.name}" for one in silent]
    has_docstring = ast.get_docstring(module) is not None
    return Shape(long_functions, has_docstring, undocumented, methods, classes)


def inherited(name: str, classes: dict[str, Class]) -> set[str]:
    """The methods that the bases of a class document, and those of the bases."""
    found: set[str] = set()
    for base in classes[name].bases:
        if base in classes and base != name:
            found |= classes[base].documented | inherited(base, classes)
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all statements in it; functions and classes are never parts of expressions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from statements(child)


def test_files_and_functions_are_small() -> None:
    found = [f"{name}:{one}" for name, facts in shapes().items() for one in facts.long_functions]
    for name, text in sources():
        if (lines := text.count("\n")) > FILE_LINES_MAX:
            found.append(f"{name}: {lines} lines")
    assert found == []


def test_every_module_says_its_role() -> None:
    silent = [n for n, t in sources() if t.strip() and not shapes()[n].has_docstring]
    assert silent == []


def test_public_functions_and_classes_of_the_product_are_documented() -> None:
    """A method that a base class documents needs no words of its own."""
    product = [(n, facts) for n, facts in shapes().items() if not n.startswith("tests/")]
    silent = [f"{name}:{one}" for name, facts in product for one in facts.undocumented]
    classes: dict[str, Class] = {}
    for name, one in (item for _, facts in product for item in facts.classes.items()):
        # A base is known by its name alone, so classes of one name count as one.
        known = classes.get(name, Class(set(), set()))
        classes[name] = Class(known.bases | one.bases, known.documented | one.documented)
    silent += [
        f"{path}:{one.line} {one.of_class}.{one.name}"
        for path, facts in product
        for one in facts.undocumented_methods
        if one.name not in inherited(one.of_class, classes)
    ]
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


def test_every_scenario_is_run_by_something() -> None:
    """A story of the simulation that no test, mutant or benchmark names proves nothing.

    A list of stories counts only if something else than its module names the list.
    """
    texts = dict(sources())
    forgotten = []
    for name, text in texts.items():
        if not name.startswith("tests/simulation/"):
            continue
        lists = re.findall(r"^([A-Z]\w*) = ", text, flags=re.MULTILINE)
        for scenario in re.findall(
            r"^async def ([a-z]\w*)\(world: World\) -> None:", text, flags=re.MULTILINE
        ):
            words = [scenario, *(one for one in lists if _lists(text, one, scenario))]
            others = [other for path, other in texts.items() if path != name]
            here = text if "/test_" in name else ""
            used = rf"(?<!async def )\b({'|'.join(words)})\b"
            if not any(re.search(used, other) for other in (*others, here)):
                forgotten.append(f"{name}: {scenario}")
    assert forgotten == []


def _lists(text: str, name: str, scenario: str) -> bool:
    value = re.search(rf"^{name} = (\(.*?^\)|\[.*?^\]|.*?$)", text, flags=re.MULTILINE | re.DOTALL)
    return value is not None and re.search(rf"\b{scenario}\b", value[1]) is not None


@pytest.mark.parametrize(
    "page", sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))
)
def test_one_title_a_page(page: str) -> None:
    outside_code = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    assert len(re.findall(r"^# ", outside_code, flags=re.MULTILINE)) == 1


@pytest.mark.parametrize("word", words.INSTEAD)
def test_a_word_that_was_given_up_does_not_come_back(word: str) -> None:
    """`tests/words.txt` has the packages where it still is; that list only shrinks."""
    back = sorted(words.found(word) - words.allowed().get(word, set()))
    assert back == [], f"say instead: {words.INSTEAD[word]}"


PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {ROOT / "CHANGELOG.md"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    if words.place(page) not in words.GENERATED:
        assert long_sentences(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_are_there(page: Path) -> None:
    named = re.findall(r"`((?:raftctl|broker|jepsen|tests|docs)/[\w./-]+)`", page.read_text())
    assert [one for one in named if "NAME" not in one and not (ROOT / one).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Of links within the repository: the file is there, and the heading."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and (
            not target.exists() or (anchor and anchor not in _anchors(target.read_text()))
        ):
            broken.append(link)
    assert broken == []


def _anchors(text: str) -> set[str]:
    """Return the names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_the_table_of_the_architecture_names_every_package() -> None:
    """The top two levels of the product, each once, and nothing else."""
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    named: list[str] = []
    for cell in (line.split("|")[1] for line in lines if line.startswith("| `")):
        top, *others = re.findall(r"`([\w.]+)`", cell)
        named += [top, *(f"{top.partition('.')[0]}.{other}" for other in others)]
    folders = (path.parent for one in words.PRODUCT for path in ROOT.glob(f"{one}/*/__init__.py"))
    assert sorted(named) == sorted(f"{one.parent.name}.{one.name}" for one in folders)
    assert len(lines) <= ARCHITECTURE_LINES_MAX


def test_decisions_are_numbered_without_holes() -> None:
    """Each file has the next number, in its name and its title, and a line in the list."""
    folder = ROOT / "docs" / "decisions"
    files = sorted(folder.glob("[0-9]*.md"))
    titles = [path.read_text().partition("\n")[0] for path in files]
    numbered = [
        (int(path.name[:4]), int(re.findall(r"\d+", title)[0]))
        for path, title in zip(files, titles, strict=True)
    ]
    assert numbered == [(n, n) for n in range(1, len(files) + 1)]
    listed = re.findall(
        r"^\| \[\d+\]\((.+)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert listed == [(p.name, t.partition(". ")[2]) for p, t in zip(files, titles, strict=True)]


def test_slow_unit_tests_exist() -> None:
    there = [path.as_posix() for path in (ROOT / "tests" / "unit").rglob("test_*.py")]
    gone = [name for name in SLOW if not any(path.endswith(f"/{name}") for path in there)]
    assert sorted(gone) == []


@pytest.mark.parametrize(
    "tool",
    [
        "raftctl.cli.reference",
        "tests.jepsen_reference",
        "tests.checkers_reference",
        "tests.monitoring",
        "tests.protocol_messages",
        "tests.requirements",
        "tests.peers.differential.page",
        "tests.peers.authorization.page",
    ],
)
def test_generated_documents_are_fresh(tool: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", tool, "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
