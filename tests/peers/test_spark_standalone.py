"""A cluster of Spark's own, each of its parts a process, judges what `spark-submit` hands it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from jepsen.spark.generate.recipe import Recipe
from tests.peers.tools import need
from tests.spark_equality import generated, write_table

pyspark = pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOME = Path(pyspark.__file__).parent
LOOPBACK = ("--host", "127.0.0.1", "--webui-port", "0")


def _environment(folder: Path) -> dict[str, str]:
    """Its Python has the packages that were installed, but this one only from the archive."""
    python = folder / "python"
    packages = f'PYTHONPATH="$PYTHONPATH:{HOME.parent}"'
    python.write_text(f'#!/bin/sh\n{packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return {
        **os.environ,
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": "",
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def _daemon(
    environment: Mapping[str, str], kind: str, *arguments: str, ready: str
) -> Iterator[str]:
    """What the pattern finds in the log of a process that runs until the block ends."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # Read to its end, or the process would wait for a reader one day.
        rest = threading.Thread(target=process.stderr.read)
        try:
            found = _wait_for(process.stderr, ready)
            rest.start()
            yield found
        finally:
            process.terminate()
            if rest.is_alive():
                rest.join()


def _wait_for(log: IO[str], pattern: str) -> str:
    said = []
    for line in log:
        said.append(line)
        if found := re.search(pattern, line):
            return found[0]
    raise AssertionError("it has ended: " + "".join(said))


@contextmanager
def _cluster(environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """The address of a master with two workers, `worker-0` and `worker-1` in the folder."""
    with ExitStack() as stack:
        at = ("--port", "0", *LOOPBACK)
        begin = _daemon(environment, "master.Master", *at, ready=r"spark://127.0.0.1:\d+")
        master = stack.enter_context(begin)
        for number in range(2):
            size = ("--cores", "1", "--memory", "1g")
            own = ("--work-dir", str(folder / f"worker-{number}"))
            begin = _daemon(
                environment,
                *("worker.Worker", *LOOPBACK, *size, *own, master),
                ready="Successfully registered with master",
            )
            stack.enter_context(begin)
        yield master


@pytest.mark.req("J7")
@pytest.mark.timeout(1800)
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
                *(HOME / "bin" / "spark-submit", "--master", master),
                *("--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"),
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
