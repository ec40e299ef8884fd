"""What this process and all that it has started take of the machine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.2


class Usage:
    """Within its block: processor time, and the most memory at a time, looked at now and then.

    What pages the processes share counts in each, so the memory is too great rather than too small.
    """

    def __init__(self) -> None:
        self.processor_s = 0.0
        self.memory_bytes = 0
        self._ended = threading.Event()
        self._looks = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            now = _of_all(lambda process: process.memory_info().rss)
            self.memory_bytes = max(self.memory_bytes, round(now))

    def __enter__(self) -> Usage:
        self.processor_s = -_of_all(_processor_s)
        self._looks.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looks.join()
        self.processor_s += _of_all(_processor_s)


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _of_all(what: Callable[[psutil.Process], float]) -> float:
    mine = psutil.Process()
    total = 0.0
    for process in [mine, *mine.children(recursive=True)]:
        try:
            total += what(process)
        except psutil.NoSuchProcess:
            continue  # what it has taken its parent has in its children's
    return total
