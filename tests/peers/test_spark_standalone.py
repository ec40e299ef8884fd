"""A cluster of Spark's own, each of its parts a process, judges what `spark-submit` hands it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jepsen.spark.recipe import Recipe
from tests.kit.spark.equality import generated, write_table
from tests.kit.spark.sessions import SQL_SETTINGS
from tests.peers.tools import need

pytest.importorskip("pyspark", reason="needs raftctl[spark]")

from tests.kit.spark.cluster import HOME, START_TIMEOUT_S, spark_cluster, spark_environment

if TYPE_CHECKING:
    from pathlib import Path

CONF = {
    "spark.driver.host": "127.0.0.1",
    # All of both workers are there before the first task is given away.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_TIMEOUT_S}s",
    **SQL_SETTINGS,
}


def _environment(folder: Path) -> dict[str, str]:
    """Its Python has the packages that were installed, but this one only from the archive."""
    python = folder / "python"
    packages = f'PYTHONPATH="$PYTHONPATH:{HOME.parent}"'
    python.write_text(f'#!/bin/sh\n{packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return {**spark_environment(str(python)), "PYTHONPATH": ""}


@pytest.mark.req("J7")
@pytest.mark.timeout(2 * START_TIMEOUT_S)
def test_a_master_and_two_workers_judge_what_is_submitted(tmp_path: Path) -> None:
    need("java")
    table = tmp_path / "history.parquet"
    write_table({"made": generated(Recipe("register", 200, 10, 3), tmp_path)}, table)
    shipped = tmp_path / "shipped"
    package = [sys.executable, "-m", "jepsen.cli.main", "spark", "package", str(shipped)]
    subprocess.run(package, check=True, capture_output=True)
    environment = _environment(tmp_path)
    with spark_cluster(environment, tmp_path) as master:
        submitted = subprocess.run(
            [
                *(HOME / "bin" / "spark-submit", "--master", master, "--executor-memory", "512m"),
                *(word for one in CONF.items() for word in ("--conf", "=".join(one))),
                *("--py-files", shipped / "jepsen.zip", shipped / "jepsen_spark.py"),
                *("check", table, "--print", "json", "--scratch", tmp_path),
            ],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert submitted.returncode == 1, submitted.stderr
    (verdict,) = json.loads(submitted.stdout)
    assert verdict["valid"] is False
    assert verdict["statistics"]["keys_invalid"] == 3
    used = {path.parts[-4] for path in tmp_path.glob("worker-*/app-*/*/stderr")}
    assert used == {"worker-0", "worker-1"}
