"""A cluster of Spark's own, each of its parts a process, judges what `spark-submit` hands it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jepsen.spark.generate.recipe import Recipe
from tests.integration.clusters import wait_until
from tests.peers.tools import need
from tests.spark_equality import generated, write_table
from tests.spark_sessions import JVM_OPTIONS, SQL_SETTINGS

pyspark = pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOME = Path(pyspark.__file__).parent
LOOPBACK = ("--host", "127.0.0.1", "--webui-port", "0")
START_TIMEOUT_S = 300
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
    return {
        **os.environ,
        "JAVA_TOOL_OPTIONS": JVM_OPTIONS,
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": "",
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def _daemon(
    environment: Mapping[str, str], log: Path, kind: str, *arguments: str
) -> Iterator[None]:
    """A process of Spark's that runs until the block ends."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with log.open("w") as out, subprocess.Popen(command, env=environment, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def _cluster(environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """The address of a master to which `worker-0` and `worker-1`, both in the folder, will come."""
    log = folder / "master.log"
    with ExitStack() as stack:
        begin = _daemon(environment, log, "master.Master", "--port", "0", *LOOPBACK)
        stack.enter_context(begin)
        address = re.compile(r"spark://127.0.0.1:\d+")
        wait_until(lambda: address.search(log.read_text()), log.read_text, START_TIMEOUT_S)
        master = address.findall(log.read_text())[0]
        for name in ("worker-0", "worker-1"):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name))
            kind = ("worker.Worker", *LOOPBACK, *size, master)
            stack.enter_context(_daemon(environment, folder / f"{name}.log", *kind))
        yield master


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
    with _cluster(environment, tmp_path) as master:
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
