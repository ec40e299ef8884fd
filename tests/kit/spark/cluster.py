"""A cluster of Spark's own for tests: a master and two workers, each a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.integration.clusters import wait_until
from tests.kit.spark.sessions import JVM_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 300
_LOOPBACK = ("--host", "127.0.0.1", "--webui-port", "0")


def spark_environment(python: str = sys.executable) -> dict[str, str]:
    """The variables of a process that starts Spark on loopback, with that Python everywhere."""
    return {
        **os.environ,
        "JAVA_TOOL_OPTIONS": JVM_OPTIONS,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_PYTHON": python,
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
def spark_cluster(
    environment: Mapping[str, str], folder: Path, memory: str = "1g"
) -> Iterator[str]:
    """The address of a master to which `worker-0` and `worker-1`, both in the folder, will come.

    `memory`: what each worker may give to executors.
    """
    log = folder / "master.log"
    with ExitStack() as stack:
        begin = _daemon(environment, log, "master.Master", "--port", "0", *_LOOPBACK)
        stack.enter_context(begin)
        address = re.compile(r"spark://127.0.0.1:\d+")
        wait_until(lambda: address.search(log.read_text()), log.read_text, START_TIMEOUT_S)
        master = address.findall(log.read_text())[0]
        for name in ("worker-0", "worker-1"):
            size = ("--cores", "1", "--memory", memory, "--work-dir", str(folder / name))
            kind = ("worker.Worker", *_LOOPBACK, *size, master)
            stack.enter_context(_daemon(environment, folder / f"{name}.log", *kind))
        yield master
