"""What `spark-submit` takes runs where nothing of the project is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jepsen.cli.main import run

pyarrow = pytest.importorskip("pyarrow", reason="needs raftctl[spark]")


@pytest.mark.req("J7")
def test_the_archive_has_all_that_its_script_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = tmp_path / "shipped"
    assert run(["spark", "package", str(shipped)]) == 0
    archive, script = map(Path, capsys.readouterr().out.splitlines())
    assert (archive, script) == (shipped / "jepsen.zip", shipped / "jepsen_spark.py")
    made = tmp_path / "made"
    # Without `site`, so that packages are found but none that is installed by a link to its source.
    subprocess.run(
        [sys.executable, "-S", script, "generate", made, "--ops", "100", "--keys", "5"],
        env={"PYTHONPATH": f"{archive}:{Path(pyarrow.__file__).parents[1]}"},
        cwd=tmp_path,
        check=True,
    )
    assert json.loads((made / "expected.json").read_text()) == {"anomalies": []}
