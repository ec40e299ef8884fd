"""What a node leaves behind when it ends in good order: nothing.

`nothing_is_left_of_a_node_that_ended`: no task that goes on, no file open, no lock held, no socket.
What is forgotten at the end is forgotten while a node runs, too: with each partition that is
deleted, each leader that changes, each connection that breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.simulator.network import sockets_of
from jepsen.simulator.properties._properties import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.kernel.process import Process

SHOWN_CHARS = 200


def check_left_behind(process: Process) -> None:
    """Raises `Violation` with what is left of a process whose main coroutine has ended."""
    left = list(_left(process))
    if left:
        complaint = f"{process.node.name}: {'; '.join(left)}"
        raise Violation("nothing_is_left_of_a_node_that_ended", complaint)


def _left(process: Process) -> Iterator[str]:
    disk = process.node.disk
    yield from sorted(f"{file.path} is open" for file in disk.open_files)
    yield from sorted(f"{path} is locked" for path in disk.locked)
    sockets = sockets_of(process)
    yield from sorted(f"port {port} is listened on" for port in sockets.listeners)
    yield from sorted(f"port {port} is connected" for port in sockets.endpoints)
    tasks = (task for task in process.tasks if not task.done())
    yield from sorted(repr(task)[:SHOWN_CHARS] for task in tasks)
