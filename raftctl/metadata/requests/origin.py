"""Where a forwarded request comes from: the request of a client, as all nodes name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The request of a client for which a broker asks the controller."""

    request_id: str
    """The id in the lines of the log that are about it, on every node."""
    traceparent: str = ""
    """Of the span that waits for the controller (W3C Trace Context); empty if it is not traced."""
