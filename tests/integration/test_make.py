"""The Makefile's recipes, as far as a plain test can see them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import run

_TOP = Path(__file__).parents[2]
_TARGETS_MAX = 10


def test_targets_are_few() -> None:
    text = (_TOP / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", text, flags=re.MULTILINE)
    named = re.findall(r"^([a-z][a-z-]*):", text, flags=re.MULTILINE)
    assert sorted(named) == sorted(phony.split())
    assert len(named) <= _TARGETS_MAX
    assert not run.RUNS.keys() & set(named)


def test_make_starts_a_run_by_its_name() -> None:
    printed = subprocess.run(
        ["make", "-n", "fuzz", "FRAMES=10"], cwd=_TOP, check=True, capture_output=True, text=True
    )
    assert ".venv/bin/python -m tests.run fuzz" in printed.stdout.splitlines()


@pytest.mark.parametrize("name", run.RUNS)
def test_the_commands_of_a_run_are_there(name: str) -> None:
    """With and without its settings: modules exist, tools are installed."""
    given = {one.partition("=")[0]: "7" for one in run.settings_of(name)}
    for line in [*run.commands(name, {}), *run.commands(name, given)]:
        program, *arguments = shlex.split(line)
        assert (Path(sys.executable).parent / program).exists()
        if arguments[:1] == ["-m"]:
            module = _TOP / arguments[1].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists()
    assert not any("[--" in line for line in run.commands(name, given))


def test_a_setting_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line before the environment, where make puts it."""
    monkeypatch.setenv("SEED", "3")
    printed = subprocess.run(
        [sys.executable, "-m", "tests.run", "fuzz", "FRAMES=5", "--print"],
        cwd=_TOP,
        check=True,
        capture_output=True,
        text=True,
    )
    assert printed.stdout == "python -m tests.fuzz --frames 5 --seed 3\n"


def test_a_run_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SystemExit):
        run.parse(["nosuch"])
    with pytest.raises(SystemExit):
        run.parse(["fuzz", "SEEED=1"])


def test_the_test_target_takes_a_folder_of_histories(tmp_path: Path) -> None:
    """A folder that exists is not taken for one of tests, which would hide the options of ours."""
    printed = subprocess.run(
        ["make", "-n", "test", f"HISTORIES={tmp_path}"],
        cwd=_TOP,
        check=True,
        capture_output=True,
        text=True,
    )
    # What the target needs first, and a make around this one, print lines of their own.
    (recipe,) = [line for line in printed.stdout.splitlines() if " -m pytest " in line]
    _, *arguments = recipe.split()
    told = subprocess.run(
        [sys.executable, *arguments, "--markers"],
        cwd=_TOP,
        check=False,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
