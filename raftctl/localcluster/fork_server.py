"""Starts nodes by forking a process that has imported what a node needs (decisions/0012).

`python -m raftctl.cli.local.fork_server` is that process. It reads a JSON object a line
(`properties`, `log`) and answers each with one (`pid`, `started`), until its input ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import psutil
import setproctitle

from raftctl.errors import invariant
from raftctl.failures import HandingTo
from raftctl.localcluster.processes import ProcessRef, start_node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

PRELOADED: tuple[str, ...] = (sys.executable, "-m", "raftctl.cli.local.fork_server")
"""The command whose process nodes are forked from."""


class NodeLauncher:
    """Starts nodes, each a process of its own, in a fraction of the time of `start_node`.

    Nodes get the environment that this process had when the launcher was made, and outlive the
    launcher. Any thread may call `launch`.
    """

    def __init__(self) -> None:
        """Returns at once: the first `launch` waits until everything is imported."""
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            PRELOADED,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the command, which ends this process when it is through.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def launch(self, properties: Path, log: Path) -> ProcessRef:
        """What `start_node` does; exactly that if the launcher's process is gone."""
        request = {"properties": str(properties.absolute()), "log": str(log.absolute())}
        with self._lock:
            reply = self._ask(json.dumps(request))
        return ProcessRef(**json.loads(reply)) if reply else start_node(properties, log)

    def _ask(self, request: str) -> str:
        """The answer; empty if there is none any more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            return self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            return ""
        except BaseException:
            # The next request would take the answer to this one for its own.
            self._process.kill()
            raise

    def close(self) -> None:
        """Ends the launcher's process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


def serve(requests: IO[str], replies: IO[str], run: Callable[[Sequence[str]], int]) -> None:
    """Forks a node for each request. `run` runs a command line and returns its status."""
    nodes: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda *_: _reap(nodes))
    for line in requests:
        request = json.loads(line)
        node = _fork_node(request["properties"], Path(request["log"]), run)
        nodes.add(node.pid)
        # It may have ended before it was known here.
        _reap(nodes)
        replies.write(json.dumps(dataclasses.asdict(node)) + "\n")
        replies.flush()


def _fork_node(properties: str, log: Path, run: Callable[[Sequence[str]], int]) -> ProcessRef:
    invariant(threading.active_count() == 1, "a process with threads cannot be forked safely")
    arguments = ["start", "--config", properties]
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return ProcessRef(child, psutil.Process(child).create_time())
    status = 1
    # This is the child's outermost frame: it must not go on as its parent would.
    with HandingTo(traceback.print_exception):
        _become_node(arguments, log)
        status = run(arguments)
    sys.stderr.flush()
    os._exit(status)


def _become_node(arguments: Sequence[str], log: Path) -> None:
    """Gives the forked child a session, streams, signals and a title of its own."""
    os.setsid()
    with log.open("ab") as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    setproctitle.setproctitle(" ".join([sys.executable, "-m", "raftctl", *arguments]))


def _reap(nodes: set[int]) -> None:
    for pid in list(nodes):
        # An interrupt by the end of another node may have reaped it a moment ago.
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                nodes.discard(pid)
