"""Before Spark starts, and while it works: what can be refused at once, and what a person reads.

A JVM takes ten seconds to start and a minute to give up on a master that is not there. So files are
looked at and the master is called first. Spark writes its errors to the process's stderr, with some
lines that say nothing about a history: those are left out, and after Ctrl-C all are.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.errors import InputError
from jepsen.history import HistoryError
from jepsen.history.formats import detect
from jepsen.store import HISTORY_FILE, TEST_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started the JVM."""
MASTER_WAIT_S = 3.0
PROGRESS_EVERY_S = 5.0
SMALL_BYTES = 64 << 20
"""Histories up to here are judged sooner by one process than Spark has started."""
CHECKERS_OF = dict.fromkeys(("queue", "queue-txn", "group", "verifiable"), "kafka-log")
"""Workload -> its checker on Spark, where that has another name."""
_DEFAULT_PORT = 7077
_LOOKED_AT_BYTES = 1 << 20
"""Of larger files only Spark's reader says what they are: a first line may be as long."""
_NOISE = re.compile(
    r"WARNING: (Using incubator modules|package \S+ not in)"
    r"|Using Spark's default log4j profile|Setting default log level to"
    r"|To adjust logging level use|WARN NativeCodeLoader"
)


def refuse_files(files: Sequence[str], *, histories: bool = True) -> int:
    """Raise InputError for the first that is missing, unreadable or no history.

    Without `histories` their content is not looked at. Returns the bytes of all that are text, 0 if
    there is a Parquet folder among them.
    """
    sizes = [_refuse_file(Path(file), histories=histories) for file in files]
    return sum(sizes) if all(sizes) else 0


def refuse_other_workloads(files: Sequence[str]) -> None:
    """Raise InputError for the first run whose operations are no reads and writes of registers.

    Without `--checker` they would be taken for such, which Spark finds out after a minute.
    """
    for file in files:
        path = Path(file)
        test = (path if path.is_dir() else path.parent) / TEST_FILE
        if not test.is_file() or not (path.is_dir() or path.name == HISTORY_FILE):
            continue
        try:
            workload = json.loads(test.read_text(encoding="utf-8"))["spec"]["workload"]
        except (OSError, ValueError, LookupError, TypeError):
            continue  # It says nothing of a workload; the history speaks for itself.
        if workload != "register":
            fitting = CHECKERS_OF.get(workload, workload)
            text = f"{file}: a test of {workload}: name its --checker, such as {fitting}"
            raise InputError(text)


def _refuse_file(path: Path, *, histories: bool) -> int:
    if path.is_dir():
        if not (path / TEST_FILE).is_file():
            if next(path.rglob("*.parquet"), None) is None:
                raise InputError(
                    f"{path}: not a history: it holds neither a run ({TEST_FILE}) nor Parquet files"
                )
            return 0
        path /= HISTORY_FILE
    try:
        with path.open("rb") as file:
            begin = file.read(_LOOKED_AT_BYTES)
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if begin.startswith(b"PAR1"):
        return 0
    if histories and size <= len(begin):
        try:
            detect(begin.decode())
        except UnicodeDecodeError:
            raise InputError(f"{path}: not a history: it is not text") from None
        except HistoryError as error:
            raise InputError(f"{path}: {error}") from None
    return max(size, 1)


def refuse_master(master: str) -> None:
    """Raise InputError if `spark://host:port[,host:port…]` names nobody who answers."""
    if not master.startswith("spark://"):
        return
    problems = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            number = int(port) if host else _DEFAULT_PORT
            with socket.create_connection((host or address, number), MASTER_WAIT_S):
                return
        except (OSError, ValueError, OverflowError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    text = "; ".join(problems)
    raise InputError(f"--master {master}: no Spark master answers there ({text})")


class SparkErrors:
    """Filter of Spark's stderr: its lines pass on their way to the process's own.

    After Ctrl-C nothing passes: what Spark says of its own end is of no use.
    """

    def __init__(self) -> None:
        self._silent = False

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Around what starts the JVM, which inherits stderr.

        From then on Ctrl-C comes here and not to Spark's handler, which would ask the JVM to cancel
        jobs in the middle of another call.
        """
        own = os.dup(2)
        try:
            reading, writing = os.pipe()
            os.dup2(writing, 2)
            os.close(writing)
            lines = (reading, os.dup(own))
            threading.Thread(target=self._pass_on, args=lines, daemon=True).start()
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        self._silent = True
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt

    def _pass_on(self, reading: int, to: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not self._silent and _NOISE.search(line.decode(errors="replace")) is None:
                    with suppress(OSError):
                        os.write(to, line)
        os.close(to)


@contextmanager
def spark_errors() -> Iterator[SparkErrors]:
    """Restore what `SparkErrors` changes in the process, when the session has ended."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield SparkErrors()
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)


class Progress:
    """Says on stderr every few seconds what goes on, and at once what begins."""

    def __init__(self, every_s: float, *, silent: bool = False) -> None:
        self._every_s = every_s
        self._silent = silent
        self._started = time.monotonic()
        self._what = ""
        self.ended = threading.Event()

    def begin(self, what: str) -> None:
        """Take this as the present state."""
        self._what = what
        self._say()

    def tell(self) -> None:
        """Report until it has ended, for a thread of its own."""
        while not self.ended.wait(self._every_s):
            self._say()

    def _say(self) -> None:
        if self._silent:
            return
        sys.stderr.write(f"jepsen: {self._what}, {time.monotonic() - self._started:.0f} s\n")


@contextmanager
def progress(what: str, size: int = 0, every_s: float = PROGRESS_EVERY_S) -> Iterator[Progress]:
    """Report progress while the work lasts; `size` is that of the histories in bytes, or 0.

    Silent below spark-submit, which makes one stream of stdout and stderr, and prints its own.
    """
    if SUBMITTED in os.environ:
        yield Progress(every_s, silent=True)
        return
    if 0 < size <= SMALL_BYTES:
        text = f"{size:,} bytes are little for Spark, `jepsen check` judges them in one process"
        sys.stderr.write(f"jepsen: {text}\n")
    made = Progress(every_s)
    made.begin(what)
    teller = threading.Thread(target=made.tell, daemon=True)
    teller.start()
    try:
        yield made
    finally:
        made.ended.set()
        teller.join()
