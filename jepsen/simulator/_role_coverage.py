"""What a simulation has reached of the quorum: a role, an event, and the role after it.

A state machine's bugs hide in the pairs of state and event that no run comes to. How many there
can be follows from no rule, so they are known from runs: a file has each that any run has seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode
from raftctl.raft.events import Event, RequestFailed, RequestReceived, ResponseReceived

if TYPE_CHECKING:
    from collections.abc import Collection

Transition = tuple[str, str, str]
"""A role, the kind of an event that came to it, and the role after that."""


def event_kind(event: Event) -> str:
    """The kind of an event, with that of the message it brings and the error in that."""
    match event:
        case RequestReceived(_, message) | ResponseReceived(_, message):
            error = getattr(message, "error", ErrorCode.NONE)
            kind = type(message).__name__
            return kind if error is ErrorCode.NONE else f"{kind}:{error.name}"
        case RequestFailed(_, request):
            return f"RequestFailed:{type(request).__name__}"
    return type(event).__name__


def as_line(transition: Transition) -> str:
    """One line of a file of those known: `follower FetchResponse unattached`."""
    return " ".join(transition)


def summary(seen: Collection[Transition], known: Collection[str]) -> str:
    """`coverage: N of M role x event x role`, and what is new of it.

    `known` are lines of `as_line`; whatever is seen counts as known from then on.
    """
    lines = {as_line(one) for one in seen}
    fresh = sorted(lines.difference(known))
    text = f"coverage: {len(lines)} of {len(lines.union(known))} role x event x role"
    return f"{text}; not seen before: {', '.join(fresh)}" if fresh else text
