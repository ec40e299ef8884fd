"""Processes forked from one that has imported what they need (decisions/0012).

To start an interpreter and import everything takes longer than most of what is to be run. A fork
server does that once: it reads a JSON object a line and answers each with one, until its input
ends. `NodeLauncher` has nodes forked by `python -m raftctl.cli.local.fork_server`, whose requests
are (`properties`, `log`) and whose replies (`pid`, `started`).
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
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import psutil
import setproctitle

from raftctl.errors import invariant
from raftctl.failures import HandingTo
from raftctl.localcluster.processes import ProcessRef, start_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    Json = Mapping[str, Any]

PRELOADED: tuple[str, ...] = (sys.executable, "-m", "raftctl.cli.local.fork_server")
"""The command whose process nodes are forked from."""
STOP_TIMEOUT_S = 10.0


class ForkServer:
    """The process of a fork server, as its user sees it. One thread at a time may ask it."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        own_session: bool = False,
    ) -> None:
        """Return at once: the first `ask` waits until everything is imported."""
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=own_session,
        )

    def ask(self, request: Json) -> Any:
        """Return the reply; None if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):
            return None
        except BaseException:
            # The next request would take the reply to this one for its own.
            self.kill()
            raise
        return json.loads(line) if line else None

    def kill(self) -> None:
        """End it at once; what it has forked goes on."""
        self._process.kill()
        self._close()

    def close(self) -> None:
        """End it by ending its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


def serve(requests: IO[str], replies: IO[str], answer: Callable[[Any], Json]) -> None:
    """Answer requests, of which `answer` forks processes, until they end."""
    for line in requests:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()


def fork(run: Callable[[], int]) -> int:
    """Have a fork of this process `run` and end with the status returned; return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    # This is the child's outermost frame: it must not go on as its parent would.
    with HandingTo(traceback.print_exception):
        status = run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class NodeLauncher:
    """Starts nodes, each a process of its own, in a fraction of the time of `start_node`.

    Nodes get the environment that this process had when the launcher was made, and outlive the
    launcher. Any thread may call `launch`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # In a session of its own: Ctrl-C is for the command, which ends it when it is through.
        self._server = ForkServer(PRELOADED, own_session=True)

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
        """Do what `start_node` does; exactly that if the launcher's process is gone."""
        request = {"properties": str(properties.absolute()), "log": str(log.absolute())}
        with self._lock:
            reply = self._server.ask(request)
        return start_node(properties, log) if reply is None else ProcessRef(**reply)

    def close(self) -> None:
        """End the launcher's process."""
        self._server.kill()


def serve_nodes(
    requests: IO[str],
    replies: IO[str],
    prepare: Callable[[str], None],
    run: Callable[[Sequence[str]], int],
) -> None:
    """Fork a node for each request. `run` runs a command line and returns its status.

    `prepare` imports what the node of a properties file needs, if none before it did.
    """
    nodes: set[int] = set()

    def start(request: Json) -> Json:
        prepare(request["properties"])
        invariant(threading.active_count() == 1, "a process with threads cannot be forked safely")
        arguments = ["start", "--config", request["properties"]]
        pid = fork(partial(_run_node, run, arguments, Path(request["log"])))
        node = ProcessRef(pid, psutil.Process(pid).create_time())
        nodes.add(pid)
        # It may have ended before it was known here.
        _reap(nodes)
        return dataclasses.asdict(node)

    signal.signal(signal.SIGCHLD, lambda *_: _reap(nodes))
    serve(requests, replies, start)


def _run_node(run: Callable[[Sequence[str]], int], arguments: Sequence[str], log: Path) -> int:
    """Give the forked child a session, streams, signals and a title of its own, and run it."""
    os.setsid()
    with log.open("ab") as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    setproctitle.setproctitle(" ".join([sys.executable, "-m", "raftctl", *arguments]))
    return run(arguments)


def _reap(nodes: set[int]) -> None:
    for pid in list(nodes):
        # An interrupt by the end of another node may have reaped it a moment ago.
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                nodes.discard(pid)
