"""Fork servers: each seed runs in a fork of an interpreter that has already imported everything.

To start an interpreter and import the product and its clients takes as long as the run of a seed. A
fork server (`raftctl.localcluster.fork_server`) does that once. A seed still has a process of its
own, and its run is that of a new interpreter; a unit test compares their traces.

`python -m jepsen.simulator serve` is such a server: it reads a JSON object a line (`target`,
`seed`, `options`, `timeout_s`) and answers each with one (`status`, `output`, `processor_s`).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import os
import queue
import sys
import tempfile
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Self

from jepsen.errors import InputError
from jepsen.simulator.runner import determinism
from jepsen.simulator.runner.determinism import SUBPROCESS_TIMEOUT_S, RunResult
from jepsen.simulator.runner.run import add_options, load, run_seed
from raftctl.localcluster.fork_server import ForkServer, fork, serve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

COMMAND = (sys.executable, "-m", "jepsen.simulator", "serve")


class ForkServers:
    """Up to `processes` fork servers, started when needed. Any thread may call `run`."""

    def __init__(self, processes: int = 1) -> None:
        self._idle: queue.LifoQueue[ForkServer | None] = queue.LifoQueue()
        for _ in range(processes):
            self._idle.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def run(
        self,
        target: str,
        seed: int,
        *,
        options: Sequence[str] = (),
        timeout_s: float | None = SUBPROCESS_TIMEOUT_S,
    ) -> RunResult:
        """Run the scenario `module:function` with one seed; wait for an idle server.

        `options` are those of `add_options`. A run that takes longer than `timeout_s` fails and
        says where it was; None: it may take any time.
        """
        server = self._idle.get()
        try:
            if server is None:
                server = ForkServer(COMMAND, determinism.environment(os.environ))
            return _run(server, target, seed, options, timeout_s)
        except BaseException:
            if server is not None:
                server.kill()
            server = None
            raise
        finally:
            self._idle.put(server)

    def close(self) -> None:
        """End the servers that are idle."""
        while True:
            try:
                server = self._idle.get_nowait()
            except queue.Empty:
                return
            if server is not None:
                server.close()


def _run(
    server: ForkServer, target: str, seed: int, options: Sequence[str], timeout_s: float | None
) -> RunResult:
    """Ask for one run and wait for its end, which is never later than its time-out."""
    request = {"target": target, "seed": seed, "options": options, "timeout_s": timeout_s}
    reply = server.ask(request)
    if reply is None:
        raise RuntimeError(f"the interpreter that ran {target}, seed {seed}, has ended")
    result = RunResult.parse(seed, reply["status"], reply["output"])
    return replace(result, processor_s=reply["processor_s"])


def serve_runs(requests: IO[str], replies: IO[str]) -> None:
    """Prepare this interpreter and run seeds in forks of it until `requests` end."""
    determinism.prepare()
    serve(requests, replies, _in_fork)


def _in_fork(request: dict[str, Any]) -> dict[str, Any]:
    # The run itself reports a scenario that cannot be loaded.
    with contextlib.suppress(Exception):
        load(request["target"])
    determinism.quiet_collector()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as late:
        child = fork(partial(_run_in_child, request, output, late))
        _, status, usage = os.wait4(child, 0)
        output.seek(0)
        late.seek(0)
        # What this run was the first to import, later ones find imported.
        for name in late.read().split():
            importlib.import_module(name)
        return {
            "status": os.waitstatus_to_exitcode(status),
            "output": output.read(),
            "processor_s": usage.ru_utime + usage.ru_stime,
        }


def _run_in_child(request: dict[str, Any], output: IO[str], late: IO[str]) -> int:
    """The forked process: its output goes to a file."""
    os.dup2(output.fileno(), sys.stdout.fileno())
    os.dup2(output.fileno(), sys.stderr.fileno())
    if request["timeout_s"] is not None:
        faulthandler.dump_traceback_later(request["timeout_s"], exit=True)
    known = set(sys.modules)
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args(request["options"])
    try:
        status = run_seed(request["target"], request["seed"], options, covered=True)
    except InputError as error:
        sys.stdout.write(f"{error}\n")
        status = determinism.BAD_ARGUMENTS
    late.write("\n".join(name for name in sys.modules if name not in known))
    late.flush()
    return status
