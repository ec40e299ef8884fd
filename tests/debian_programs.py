"""Programs of Debian that tests run: Prometheus and its tool, and browsers.

A program comes from PATH. Else the packages that it needs and the machine lacks are downloaded by
`apt-get` and unpacked beside the other programs of `tests/peers`; that needs no rights of root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.peers.tools import INSTALL_TIMEOUT_S, installed, run

_FILES = {
    "prometheus": ("prometheus", "usr/bin/prometheus"),
    "promtool": ("prometheus", "usr/bin/promtool"),
    "firefox-esr": ("firefox-esr", "usr/lib/firefox-esr/firefox-esr"),
    "chromium": ("chromium", "usr/lib/chromium/chromium"),
    "chromedriver": ("chromium-driver", "usr/bin/chromedriver"),
}
"""Program to its package, and to its file there."""
_NEW_PACKAGE = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
_STARTER = """#!/bin/sh
LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec {file} "$@"
"""


@cache
def program(name: str) -> Path:
    """The program of this name; skips the test where it can neither be found nor downloaded.

    Continuous integration, which is supposed to have all of them, fails instead.
    """
    if found := shutil.which(name):
        return Path(found)
    package, _ = _FILES[name]
    try:
        return installed(f"debian-{package}", package, lambda to: _download(package, to)) / name
    except (OSError, AssertionError, subprocess.TimeoutExpired) as error:
        reason = f"needs {name}, Debian's package {package}, which cannot be downloaded: {error}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _download(package: str, folder: Path) -> None:
    """Unpacks a package and what it needs that is not installed, and makes its programs start."""
    lists, archives = folder / "lists", folder / "archives"
    for made in (lists, archives):
        (made / "partial").mkdir(parents=True)
    apt = [
        "apt-get",
        "-qq",
        *("-o", f"Dir::State::lists={lists}"),
        *("-o", f"Dir::Cache={folder}"),
        *("-o", "Debug::NoLocking=true"),
        *("-o", "APT::Sandbox::User="),
    ]
    run([*apt, "update"], timeout_s=INSTALL_TIMEOUT_S)
    plan = run([*apt, "--simulate", "--no-install-recommends", "install", package])
    needed = _NEW_PACKAGE.findall(plan)
    assert needed, f"{package} is installed, but the program is not on PATH"
    run([*apt, "download", *needed], folder=archives, timeout_s=INSTALL_TIMEOUT_S)
    for archive in sorted(archives.glob("*.deb")):
        run(["dpkg", "--extract", archive, folder])
    shutil.rmtree(lists)
    shutil.rmtree(archives)
    for name, (owner, file) in _FILES.items():
        if owner == package:
            _write_starter(folder, name, folder / file)


def _write_starter(root: Path, name: str, file: Path) -> None:
    """Writes a script that starts a file of an unpacked package with the libraries beside it."""
    assert file.exists(), f"the package has no {file}"
    folders = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu"), file.parent]
    libraries = ":".join(shlex.quote(str(folder)) for folder in folders)
    starter = root / name
    starter.write_text(_STARTER.format(libraries=libraries, file=shlex.quote(str(file))))
    starter.chmod(0o755)
