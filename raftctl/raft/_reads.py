"""Linearizable reads: whether this leader still led after the read was asked for (row Q9).

A Fetch that merely *arrives* after the question proves nothing: it may have been sent long before,
by a voter that has elected another leader since. So each read opens a round; answers to fetches
carry the newest round, and a Fetch carries the newest that its sender has seen in this epoch. A
majority of voters that has seen the round was in this epoch after the question, so no newer leader
had been elected by then, and everything committed by then is in this leader's log.
Source: Raft §8 and §6.4 of the thesis (read index), turned round for pull replication.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

READS_MAX = 100_000
"""Reads that wait; more are refused."""


class _Read(NamedTuple):
    round: int
    token: int


class Reads:
    """The reads that wait for one leader."""

    __slots__ = ("_waiting", "round")

    def __init__(self) -> None:
        self.round = 0
        """The newest round; every answer to a Fetch carries it."""
        self._waiting: deque[_Read] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, token: int) -> None:
        """Opens a round for a read."""
        self.round += 1
        self._waiting.append(_Read(self.round, token))

    def seen(self, by_majority: int) -> list[int]:
        """The tokens of the reads whose round a majority has seen, in order."""
        tokens = []
        while self._waiting and self._waiting[0].round <= by_majority:
            tokens.append(self._waiting.popleft().token)
        return tokens
