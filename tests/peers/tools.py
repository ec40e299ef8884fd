"""What peer tests share: foreign tools, a cache for what they install, clean runs of programs.

A machine without a tool skips its tests and says which tool; continuous integration, which is
supposed to have all of them, fails instead. Packages go to `out/peers`, kept between runs, each in
a folder named after what it was made from. Tests may run in several processes: one at a time
installs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "out" / "peers"
INSTALL_TIMEOUT_S = 240
KAFKA_VERSION = "4.3.1"
"""Of the Apache Kafka that runs beside ours."""
RUN_TIMEOUT_S = 60


def need(*tools: str) -> None:
    """Skips the test if a tool is missing, or fails it where none may be."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def installing() -> Iterator[None]:
    """Nobody else installs meanwhile: into the same folder, or with the same tool's own cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(name: str, recipe: str, install: Callable[[Path], object]) -> Path:
    """The folder that `install` has filled; done once for each `recipe`, the text that decides."""
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    done = folder / ".complete"
    if done.exists():
        return folder
    with installing():
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            done.touch()
    return folder


def run(
    command: Sequence[str | Path],
    *,
    stdin: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
) -> str:
    """Runs a program to its end and returns its stdout; fails with all it wrote if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{command[0]} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout
