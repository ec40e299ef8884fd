"""Coverage of simulations: events of the quorum by role, and faults by the state they struck.

A state machine's bugs hide in the pairs of state and event that no run reaches. How many there can
be follows from no rule, so they are known from runs: a file lists each that any run has reached.

A run prints its own as lines, and `many` adds them up and compares them with that file:
`role follower Tick prospective`, `fault kill leader`.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from jepsen.errors import InputError
from raftctl.errors import ErrorCode
from raftctl.raft import events
from raftctl.raft.events import RequestFailed, RequestReceived, ResponseReceived

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from raftctl.quorum import RaftDriver

EVENTS = frozenset(get_args(events.Event))
ROLE, FAULT = "role", "fault"
TITLES = {ROLE: "role x event x role", FAULT: "fault x state"}
NAMED_MAX = 8
"""The new or missing ones that are named."""


class Coverage:
    """The lines that one world has reached."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._transitions: set[Transition] = set()

    def watch(self, driver: RaftDriver) -> None:
        """Note from now on every event that comes to the driver's core."""
        if not isinstance(driver.flight_recorder, _Recorder):
            driver.flight_recorder = _Recorder(driver, self)

    def changed(self, transition: Transition) -> None:
        """Note a role, an event that came to it, and the role after that."""
        if transition not in self._transitions:
            self._transitions.add(transition)
            self.seen.add(f"{ROLE} {as_line(transition)}")

    def struck(self, kind: str, state: str) -> None:
        """Note that a fault of this kind struck a node in that state."""
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
            self._coverage.changed((before, kind, self._core.role))
            self._open = None
        if type(entry) in EVENTS:
            self._open = self._core.role, event_kind(entry)
        super().append(entry)


def known_in(path: str) -> set[str]:
    """Return the lines of a file.

    Raises InputError if it cannot be read.
    """
    try:
        return set(Path(path).read_text(encoding="utf-8").splitlines())
    except OSError as error:
        raise InputError(f"--coverage {path}: cannot be read: {error.strerror}") from None


def summary(seen: Collection[str], known: Collection[str]) -> str:
    """Return how much of the known lines was reached, by kind; new ones count as known."""
    both = set(seen).union(known)
    counts = [
        f"{_count(seen, kind)} of {_count(both, kind)} {title}" for kind, title in TITLES.items()
    ]
    lines = [f"coverage: {'; '.join(counts)}"]
    for title, some in (("new", set(seen) - set(known)), ("not reached", both - set(seen))):
        if some:
            rest = f" and {len(some) - NAMED_MAX} more" if len(some) > NAMED_MAX else ""
            lines.append(f"{title}: {', '.join(sorted(some)[:NAMED_MAX])}{rest}")
    return "".join(f"{line}\n" for line in lines)


def _count(lines: Iterable[str], kind: str) -> int:
    return sum(line.startswith(f"{kind} ") for line in lines)


Transition = tuple[str, str, str]
"""A role, the kind of an event that came to it, and the role after that."""


def event_kind(event: object) -> str:
    """Return the kind of an event, with that of the message it brings and the error in that."""
    match event:
        case RequestReceived(_, message) | ResponseReceived(_, message):
            error = getattr(message, "error", ErrorCode.NONE)
            kind = type(message).__name__
            return kind if error is ErrorCode.NONE else f"{kind}:{error.name}"
        case RequestFailed(_, request):
            return f"RequestFailed:{type(request).__name__}"
    return type(event).__name__


def as_line(transition: Transition) -> str:
    """Return one line of a file of those known: `follower FetchResponse unattached`."""
    return " ".join(transition)


def transitions_summary(seen: Collection[Transition], known: Collection[str]) -> str:
    """`coverage: N of M role x event x role`, and what is new of it.

    `known` are lines of `as_line`; whatever is seen counts as known from then on.
    """
    lines = {as_line(one) for one in seen}
    fresh = sorted(lines.difference(known))
    text = f"coverage: {len(lines)} of {len(lines.union(known))} role x event x role"
    return f"{text}; not seen before: {', '.join(fresh)}" if fresh else text
