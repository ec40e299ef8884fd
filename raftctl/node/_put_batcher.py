"""Puts of one turn of the event loop, decided on and appended together.

Deciding on a put costs less than a batch, a flush and an answer each of its own. So puts gather
until the turn ends, or until another request has to see what they do. This path earns several times
the throughput of one put at a time (`docs/explanation/performance.md`); no other request needs it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.metadata.requests import ControllerResponse
    from raftctl.metadata.requests.kv import KvPutRequest

    Answers = Sequence[ControllerResponse | KafkaError]
    ReplyAll = Callable[[Answers], None]
    Write = Callable[[Sequence[KvPutRequest], ReplyAll], None]

PUTS_BYTES_MAX = 1024 * 1024
"""Puts of one turn of the event loop are appended together up to about this many bytes."""


class _Group(NamedTuple):
    """Puts that are answered by one call, with an answer for each."""

    requests: Sequence[KvPutRequest]
    reply: ReplyAll


class PutBatcher:
    """Gathers puts, and divides the answers to a batch among those who asked."""

    def __init__(self, write: Write) -> None:
        """`write(requests, reply)` decides on puts; it raises KafkaError, or replies once to all.

        The reply may come later, when what was decided on is committed.
        """
        self._write = write
        self._groups: list[_Group] = []
        self.undecided = 0
        """Puts that are not decided on yet."""
        self.undecided_bytes = 0
        """The size of their values."""

    def add(self, requests: Sequence[KvPutRequest], reply: ReplyAll) -> None:
        """Keep puts for the next `decide`; `reply` gets an answer for each, in order."""
        self._groups.append(_Group(requests, reply))
        self.undecided += len(requests)
        self.undecided_bytes += _size(requests)

    def decide(self) -> None:
        """Decide on all puts that have gathered, in batches of about `PUTS_BYTES_MAX`."""
        while self._groups:
            size, count = 0, 0
            while count < len(self._groups) and size < PUTS_BYTES_MAX:
                size += _size(self._groups[count].requests)
                count += 1
            groups = self._groups[:count]
            del self._groups[:count]
            requests = [request for group in groups for request in group.requests]
            self.undecided -= len(requests)
            self.undecided_bytes -= size
            try:
                self._write(requests, partial(_divide, groups))
            except KafkaError as error:
                _divide(groups, [error] * len(requests))

    def refuse(self, error: KafkaError) -> None:
        """Answer all that have gathered with the error: nothing was done."""
        groups, self._groups = self._groups, []
        self.undecided = self.undecided_bytes = 0
        _divide(groups, [error for group in groups for _ in group.requests])


def _divide(groups: Sequence[_Group], answers: Answers) -> None:
    if len(groups) == 1:
        groups[0].reply(answers)
        return
    end = 0
    for group in groups:
        begin, end = end, end + len(group.requests)
        group.reply(answers[begin:end])


def _size(puts: Sequence[KvPutRequest]) -> int:
    return sum([len(put.value) for put in puts])
