"""The events of a world, in order, and a running digest of them.

Two runs are the same run when their digests are equal. An event must therefore hold nothing that
differs between processes: addresses of objects are blanked here, everything else is up to the
caller. The newest lines are kept for people; all of them can go to a sink.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_KEPT_MAX = 10_000
DIGESTED_TOGETHER = 256
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


class Trace:
    """The story of one world. `clock` returns virtual seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._digest = hashlib.sha256()
        self._undigested: list[str] = []
        self.sink: Callable[[str], object] | None = None
        self.recent: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self.count = 0

    def add(self, node: str, kind: str, detail: str = "") -> None:
        """Append one event of `node`, stamped with the virtual time in nanoseconds."""
        text = _ADDRESS.sub("0x", detail) if "0x" in detail else detail
        line = f"{round(self._clock() * 1_000_000_000)} {node} {kind} {text}\n"
        self._undigested.append(line)
        if len(self._undigested) >= DIGESTED_TOGETHER:
            self._digest_all()
        self.recent.append(line)
        self.count += 1
        if self.sink is not None:
            self.sink(line)

    def hash(self) -> str:
        """Return the SHA-256 of all events so far, as hexadecimal digits."""
        self._digest_all()
        return self._digest.hexdigest()

    def _digest_all(self) -> None:
        self._digest.update("".join(self._undigested).encode("utf-8", "backslashreplace"))
        self._undigested.clear()
