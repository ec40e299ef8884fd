"""A Spark session for checking: what it needs on the machine, how it is set up, and its end.

`tune` sets how Spark plans a query, by the number of rows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jepsen.errors import InputError
from jepsen.spark.package import ARCHIVE, write_archive
from jepsen.spark.preflight import SUBMITTED, refuse_master, spark_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

LINE_BYTES = 150
"""Bytes of a line of a history, and of a dump's record, roughly."""
TASK_ROWS = 250_000
"""Operations that one task sorts and checks, roughly."""


def tune_for(spark: SparkSession, files: Iterable[Path]) -> None:
    """Call `tune` by the size of those of the files that are files of lines."""
    tune(spark, sum(path.stat().st_size for path in files if path.is_file()) // LINE_BYTES)


def tune(spark: SparkSession, rows: int) -> None:
    """Turn off the compiling and planning that only long queries are worth."""
    tasks = max(spark.sparkContext.defaultParallelism, rows // TASK_ROWS + 1)
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    for key in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
        spark.conf.set(key, str(rows > TASK_ROWS).lower())


JAVA_MIN = 17
ARROW_BATCH_ROWS = 50_000
ARROW_BATCH_BYTES = 128 << 20
"""The bytes of a batch, which bound it too: rows may be large."""
BROADCAST_WAIT_S = 3600
"""A machine that is busy with other things is no reason to give up."""
_MALLOC = ":".join(
    (
        "glibc.malloc.mmap_threshold=1073741824",
        "glibc.malloc.trim_threshold=2147483648",
        "glibc.malloc.hugetlb=1",
    )
)
"""Python's workers keep the pages of arrays, all of about one size, for the next piece. To fetch
them again each time was a seventh of their work. Other C libraries than glibc pass this over."""
_JAVA_WAIT_S = 30
_LOOPBACK = "127.0.0.1"
_LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n%ex
"""


def java_missing() -> str:
    """Return the problem of the machine's Java, with its remedy; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"install Java {JAVA_MIN} or newer and put it on the PATH, or set JAVA_HOME"
    if java is None:
        return f"Spark needs Java: {remedy}"
    try:
        run = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_WAIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"Spark needs Java, but {java} does not run ({error}): {remedy}"
    version = re.search(r'version "(\d+)', run.stderr + run.stdout)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN}, {java} is older: {remedy}"
    return ""


@contextmanager
def spark_session(
    master: str, memory: str = "2g", scratch: Path | None = None
) -> Iterator[SparkSession]:
    """Return a session on `master` (`local[*]`, `spark://host:port`), ended afterwards.

    `memory` is the driver's, and each executor's; shuffles spill to `scratch`. Below spark-submit
    its options hold instead of these. A session that this process has already is used as it is and
    lives on. Raises InputError without Java or PySpark, or where no master answers.
    """
    refuse_master(master)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError("Spark is not installed: pip install '.[spark]' in a checkout") from None
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    missing = java_missing()
    if missing:
        raise InputError(missing)
    with tempfile.TemporaryDirectory(prefix="jepsen-spark-", dir=scratch) as folder:
        settings = _settings(folder)
        if SUBMITTED not in os.environ:
            settings |= _settings_of_its_own(master, memory, folder)
        builder = SparkSession.builder.appName("jepsen").config(map=settings)
        with spark_errors() as errors:
            try:
                with errors.starting():
                    spark = builder.getOrCreate()
                _ship(spark, Path(folder))
                yield spark
            finally:
                started = SparkSession.getActiveSession()
                if started is not None:
                    started.stop()


def _settings(folder: str) -> dict[str, Any]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        "spark.sql.broadcastTimeout": BROADCAST_WAIT_S,
        "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_BATCH_ROWS,
        "spark.sql.execution.arrow.maxBytesPerBatch": ARROW_BATCH_BYTES,
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _MALLOC),
    }


def _settings_of_its_own(master: str, memory: str, folder: str) -> dict[str, Any]:
    """Settings that are decided where the JVM is started."""
    # Workers run the interpreter that has the packages, not the first python3 of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    logging = Path(folder) / "log4j2.properties"
    logging.write_text(_LOGGING)
    settings: dict[str, Any] = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        "spark.driver.memory": memory,
        "spark.executor.memory": memory,
        "spark.local.dir": folder,
    }
    if master.startswith("local"):
        # Nobody else has to reach the driver.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return settings


def _ship(spark: SparkSession, folder: Path) -> None:
    """Let executors on other machines import this package."""
    if spark.sparkContext.master.startswith("local[") or not Path(__file__).exists():
        return  # they have it, or all have it from an archive already
    write_archive(folder / ARCHIVE)
    spark.sparkContext.addPyFile(str(folder / ARCHIVE))
