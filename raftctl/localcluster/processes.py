"""Starts node processes and signals them, never anybody else's.

A process is known by its id and its start time, so that an id which the system has given to
another program since is not mistaken for the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_POLL_S = 0.02
_SAME_START_S = 0.05
OWNER_FILE = "owner.json"
"""In a cluster's folder: the process that starts and ends its nodes."""
_PID_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """One process in time."""

    pid: int
    started: float
    """Seconds since 1970, by the clock of the system."""

    def is_alive(self) -> bool:
        """Return whether it still runs; a child that ended is reaped on the way."""
        return self._process() is not None

    def send(self, number: signal.Signals) -> None:
        """Send the signal; does nothing if the process is gone."""
        process = self._process()
        if process is not None:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                return
            except psutil.AccessDenied:
                text = f"process {self.pid} is another user's: run the command as that user"
                raise ConfigError(text) from None

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) > _SAME_START_S:
                return None
            # Of a killed process the first thread goes first; while others wait for the disk, its
            # ports and locks are still taken.
            if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
                return process
        except psutil.NoSuchProcess:
            return None
        _reap(self.pid)
        return None


def start_node(
    properties: Path,
    log: Path,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> ProcessRef:
    """Start `raftctl start` in its own session, with its output appended to `log`.

    `environment`: variables that it has besides those of this process. `prefix`: a program and
    its arguments that becomes the node, as `env` would.
    """
    node = [sys.executable, "-m", "raftctl", "start", "--config", str(properties)]
    command = [*prefix, *node]
    return start_program(command, log, environment)


def start_program(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> ProcessRef:
    """Start a program that may outlive this one; the rest as for `start_node`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    # `_reap` collects its status, so the handle must not mourn it.
    child.returncode = 0
    return ProcessRef(child.pid, psutil.Process(child.pid).create_time())


@contextlib.contextmanager
def postponed_signals() -> Iterator[None]:
    """Inside, Ctrl-C and its like wait, so that no process is started and then forgotten.

    Only the main thread is ever interrupted: on others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {one: signal.signal(one, lambda number, _: came.append(number)) for one in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def save_process(path: Path, process: ProcessRef) -> None:
    """Remembers the process for a later command."""
    path.write_text(json.dumps({"pid": process.pid, "started": process.started}))


def mark_as_own(folder: Path) -> None:
    """Record in a cluster's folder that this process starts and ends its nodes."""
    save_process(folder / OWNER_FILE, ProcessRef(os.getpid(), psutil.Process().create_time()))


def load_process(path: Path) -> ProcessRef | None:
    """Return the process remembered, or None if there is none."""
    try:
        document = json.loads(path.read_text())
        return ProcessRef(int(document["pid"]), float(document["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def lock_holder(directory: Path) -> ProcessRef | None:
    """Return the process that has locked a data directory, however it was started; None if none
    has.

    The id in the lock file may have been given to another program since: only a process that has
    the file open is taken for the node. ConfigError for one of another user, whose files cannot be
    listed, if its command line is a node's.
    """
    lock = directory / ".lock"
    last = locked_last_by(directory)
    if last is None:
        return None
    number = last.pid
    try:
        process = psutil.Process(number)
        started = process.create_time()
        there = lock.stat()
        for file in process.open_files():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(file.path), there):
                    return ProcessRef(number, started)
    except psutil.AccessDenied:
        if {"start", "--config"} <= set(process.cmdline()):
            text = f"{directory}: process {number}, of another user, may be its node: "
            raise ConfigError(text + "run the command as that user") from None
    except (psutil.NoSuchProcess, OSError):
        pass
    return None


@dataclass(frozen=True, slots=True)
class Locked:
    """Last lock of a data directory: its time, and its process, which may be gone."""

    pid: int
    at_s: float
    """Seconds since 1970."""


def locked_last_by(directory: Path) -> Locked | None:
    """Return the process that a data directory's lock file names; None if it names none."""
    try:
        with (directory / ".lock").open("rb") as lock:
            text = lock.read(_PID_DIGITS_MAX).strip()
            at_s = os.fstat(lock.fileno()).st_mtime
    except OSError:
        return None
    return Locked(int(text), at_s) if text.isdigit() else None


def wait_gone(processes: list[ProcessRef], timeout_s: float) -> list[ProcessRef]:
    """Wait for the processes to end; those that still run after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        processes = [process for process in processes if process.is_alive()]
        if not processes or time.monotonic() >= deadline:
            return processes
        time.sleep(_POLL_S)


def _reap(pid: int) -> None:
    # What is not our child is reaped by its parent.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
