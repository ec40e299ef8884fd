"""The Makefile's recipes, as far as a plain test can see them."""

import subprocess
import sys
from pathlib import Path

_TOP = Path(__file__).parents[2]


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
