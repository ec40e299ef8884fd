"""Files for `spark-submit`: this package as an archive, and a script that runs it."""

from __future__ import annotations

import zipfile
from pathlib import Path

ARCHIVE, SCRIPT = "jepsen.zip", "jepsen_spark.py"
_SCRIPT = '''"""The commands of `jepsen spark`, for spark-submit with --py-files jepsen.zip."""

import sys

from jepsen.cli.main import run
from jepsen.cli.spark import app

sys.exit(run(sys.argv[1:], app))
'''


def write_archive(path: Path) -> None:
    """Return the package as a file that executors import it from."""
    package = Path(__file__).parents[1]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(package.rglob("*.py")):
            archive.write(source, source.relative_to(package.parent))


def write_package(folder: Path) -> tuple[Path, Path]:
    """Write the archive and the script into the folder, and return their paths."""
    archive, script = folder / ARCHIVE, folder / SCRIPT
    write_archive(archive)
    script.write_text(_SCRIPT)
    return archive, script
