"""What the runs of whole clusters have reached: events in roles, and faults in states.

A run tells its own as lines, `many` puts them together and compares them with those that a file
knows from earlier runs: `role follower Tick prospective`, `fault kill leader`.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.errors import InputError
from jepsen.simulator._role_coverage import as_line, event_kind
from raftctl.raft import events

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from raftctl.quorum import RaftDriver

ROLE, FAULT = "role", "fault"
TITLES = {ROLE: "role x event x role", FAULT: "fault x state"}
TOLD_MAX = 8
"""Of those that are new or missing."""


class Coverage:
    """What one world has reached."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def watch(self, driver: RaftDriver) -> None:
        """Notes from now on every event that comes to the driver's core."""
        if not isinstance(driver.flight_recorder, _Recorder):
            driver.flight_recorder = _Recorder(driver, self)

    def struck(self, kind: str, state: str) -> None:
        """Notes that a fault of this kind struck somebody in that state."""
        self.seen.add(f"{FAULT} {kind} {state}")


class _Recorder(deque[events.Event | events.Effect]):
    """The driver's flight recorder: gets each event before the core does, its effects after."""

    def __init__(self, driver: RaftDriver, coverage: Coverage) -> None:
        super().__init__(driver.flight_recorder, maxlen=driver.flight_recorder.maxlen)
        self._core = driver.core
        self._coverage = coverage
        self._open: tuple[str, str] | None = None
        """The role and the event that is being handled."""

    def append(self, entry: events.Event | events.Effect) -> None:
        """The role has changed, if it does, when the next one comes."""
        if self._open is not None:
            before, kind = self._open
            line = as_line((before, kind, self._core.role))
            self._coverage.seen.add(f"{ROLE} {line}")
            self._open = None
        if isinstance(entry, events.Event):
            self._open = self._core.role, event_kind(entry)
        super().append(entry)


def known_in(path: str) -> set[str]:
    """The lines of a file. InputError."""
    try:
        return set(Path(path).read_text(encoding="utf-8").splitlines())
    except OSError as error:
        raise InputError(f"--coverage {path}: cannot be read: {error.strerror}") from None


def summary(seen: Collection[str], known: Collection[str]) -> str:
    """How much of what is known was reached, by kind; what is new counts as known at once."""
    both = set(seen).union(known)
    counts = [
        f"{_count(seen, kind)} of {_count(both, kind)} {title}" for kind, title in TITLES.items()
    ]
    lines = [f"coverage: {'; '.join(counts)}"]
    for title, some in (("new", set(seen) - set(known)), ("not reached", both - set(seen))):
        if some:
            rest = f" and {len(some) - TOLD_MAX} more" if len(some) > TOLD_MAX else ""
            lines.append(f"{title}: {', '.join(sorted(some)[:TOLD_MAX])}{rest}")
    return "".join(f"{line}\n" for line in lines)


def _count(lines: Iterable[str], kind: str) -> int:
    return sum(line.startswith(f"{kind} ") for line in lines)
