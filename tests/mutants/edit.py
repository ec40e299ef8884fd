"""Small bugs: one place in one function of the product reads otherwise.

The code is changed in the function itself, so whoever imported it by name has the bug too.
The named test passes as the product is and fails with the edit. A process of its own plants it:
`PLANTED_EDIT=NAME pytest -p tests.mutants.plant TEST`.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from types import CodeType, FunctionType

PLANTED = "PLANTED_EDIT"
TIMEOUT_S = 300
TESTS_FAILED = 1
"""The exit status of pytest where tests ran and failed; others say that they did not run."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One planted bug."""

    name: str
    function: str
    """`module:Class.method` or `module:function`, below `raftctl` unless in another package."""
    old: str
    new: str
    test: str
    """The file and name of the test that is to fail, below `tests`."""

    @property
    def target(self) -> FunctionType:
        """The function of the product."""
        module, path = self.function.split(":")
        within = "" if module.startswith(("broker.", "jepsen.")) else "raftctl."
        found: object = importlib.import_module(f"{within}{module}")
        for part in path.split("."):
            found = inspect.getattr_static(found, part)
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if callable(found) and hasattr(found, "cache_clear"):
            found = inspect.unwrap(found)
        if not isinstance(found, FunctionType):
            raise TypeError(f"{self.name}: {self.function} is no function")
        return found

    def code(self) -> CodeType:
        """What the function does with the edit; ValueError unless the old text is there once."""
        target = self.target
        source = textwrap.dedent(inspect.getsource(target))
        if source.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: {self.old!r} is not once in {self.function}")
        tree = ast.parse(source.replace(self.old, self.new))
        (definition,) = tree.body
        if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            definition.decorator_list = []
        flags = __future__.annotations.compiler_flag
        compiled = compile(tree, f"<{self.name}>", "exec", flags=flags)
        named = [one for one in compiled.co_consts if isinstance(one, CodeType)]
        code = next(one for one in named if one.co_name == target.__name__)
        if code.co_freevars != target.__code__.co_freevars:
            raise ValueError(f"{self.name}: {self.function} is a closure")
        return code

    def plant(self) -> None:
        """Replaces the function's code, for as long as this process lives."""
        attribute = "__code__"
        setattr(self.target, attribute, self.code())


def failure(*tests: str, planted: str = "") -> str:
    """The first test that fails, or nothing; RuntimeError where the tests did not run.

    Tests that do not end are no failure of the one that was to find the edit: a test bounds what
    it waits for.
    """
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "tests.mutants.plant"]
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)],
            env=os.environ | {PLANTED: planted},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{', '.join(tests)}: no end within {TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED tests/")]
    if done.returncode != TESTS_FAILED or not failed:
        raise RuntimeError(f"{', '.join(tests)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[0].removeprefix("FAILED tests/").partition(" - ")[0]
