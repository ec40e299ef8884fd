"""Ids of requests, and which request the code that runs now is about.

An id is `<node>.<start>.<connection>.<number>`: the node that a client has sent the request to, the
time of that node's start in hexadecimal, the number of the connection since then, and that of the
request on it. So it is unique without chance, and its parts say where to look. Requests over HTTP
count as of connection 0.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import MutableMapping

ID_CHARACTERS_MAX = 128
"""The longest id that is taken from a client of the HTTP API."""
_ID = re.compile(rf"[A-Za-z0-9._:/+=-]{{1,{ID_CHARACTERS_MAX}}}", re.ASCII)


class RequestIds:
    """The ids that one node gives."""

    def __init__(self, node_id: int, start_ms: int) -> None:
        """`start_ms` is when the node started, by the wall clock."""
        self._prefix = f"{node_id}.{start_ms:x}"
        self._connections = count(1)
        self._numbers = count(1)

    def of_connection(self) -> str:
        """Return what the ids of the next connection's requests begin with."""
        return f"{self._prefix}.{next(self._connections)}"

    def of_request(self) -> str:
        """Return the id of a request that has no connection of its own."""
        return f"{self._prefix}.0.{next(self._numbers)}"


def is_request_id(text: str) -> bool:
    """Return whether an id of a client's may stand in logs and headers as it is."""
    return _ID.fullmatch(text) is not None


class Followed(Protocol):
    """A request that is under way."""

    @property
    def followed_id(self) -> str:
        """The id of the request; empty once it is over, or if it has none."""


class Named(NamedTuple):
    """A request of which nothing but the id is known here."""

    followed_id: str


_current: ContextVar[Followed | None] = ContextVar("request", default=None)


def follow(request: Followed | None) -> None:
    """Have the lines of the log that are written from here on name this request.

    This holds for the callback or the task that runs, and for tasks that it starts. Some of these
    outlive the request; lines do not name it once it is over.
    """
    _current.set(request)


def followed_id() -> str:
    """Return the id of the request that is worked at; empty if it is none."""
    request = _current.get()
    return "" if request is None else request.followed_id


def add_request_id(
    _log: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Name the request in a line of the log, unless the line does; a processor of structlog."""
    if "request_id" not in line and (request_id := followed_id()):
        line["request_id"] = request_id
    return line
