"""Logs: producers that send, a consumer that polls all of it, and faults of known kinds.

Each send takes effect at one moment, so the log's order is the order of these moments. A poll
returns what `POLL_SENDS` sends in a row have written. A fault lies in the midst of such a row, one
at most in each, so that none has to do with another, nor with a send whose outcome is unknown.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from jepsen.spark.generate.recipe import POLL_SENDS, Expected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.spark.generate.recipe import Recipe

LOST, DUPLICATE, ABORTED, UNEXPECTED, INCONSISTENT, BACKWARDS, SKIPPED = KINDS = (
    "lost-write",
    "duplicate",
    "G1a",
    "unexpected",
    "inconsistent-offsets",
    "nonmonotonic-poll",
    "poll-skip",
)
"""The faults take turns."""
_FOLLOWS = {LOST: ("int-poll-skip",), DUPLICATE: ("int-poll-skip", "int-nonmonotonic-poll")}
"""What the one poll that shows it also shows: a place left out, a value that comes again."""
_OF_A_VALUE = (LOST, DUPLICATE, ABORTED, UNEXPECTED)
_MIDDLE = POLL_SENDS // 2
_BATCH_ROWS = 20_000
_COLUMNS = ("process", "f", "type", "invoked", "completed", "argument", "result")
Row = tuple[Any, ...]
"""The values of `_COLUMNS`."""
Pairs = list[tuple[int, int]]
"""(offset, value) of what was polled."""


def name_of(key: int) -> str:
    """A log's key."""
    return f"log-{key}"


def planted(recipe: Recipe, key: int) -> dict[int, str]:
    """The faults of a key: number of the send to kind."""
    faults = recipe.faults_of(key)
    rng = random.Random(f"{recipe.seed} {key} faults")
    polls = range(1, recipe.operations_a_key // POLL_SENDS - 1)
    chosen = sorted(rng.sample(polls, len(faults)))
    kinds = (KINDS[fault % len(KINDS)] for fault in faults)
    return dict(zip((poll * POLL_SENDS + _MIDDLE for poll in chosen), kinds, strict=True))


def expected(recipe: Recipe) -> Iterator[Expected]:
    """All anomalies that are in the history."""
    for number in range(recipe.keys):
        key = json.dumps(name_of(number))
        faults = planted(recipe, number)
        for value, kind in faults.items():
            yield Expected(key, kind, value if kind in _OF_A_VALUE else None)
            for name in _FOLLOWS.get(kind, ()):
                yield Expected(key, name, None)
        if LOST in faults.values():
            yield Expected(key, "unseen", None)


def batches(recipe: Recipe, key: int) -> Iterator[dict[str, Any]]:
    """The operations on one log, by column, as they end."""
    rows = sorted(_Log(recipe, key).rows(), key=lambda row: row[4])
    lines = {moment: line for line, moment in enumerate(sorted(_moments(rows)))}
    first = key * (2 * recipe.processes + 2 * recipe.operations_a_key)
    while rows:
        columns = dict(zip(_COLUMNS, zip(*rows[:_BATCH_ROWS], strict=True), strict=True))
        del rows[:_BATCH_ROWS]
        for column, moments in (("invoke_index", "invoked"), ("complete_index", "completed")):
            columns[column] = tuple(
                lines[moment] * recipe.keys + key for moment in columns.pop(moments)
            )
        columns["process"] = tuple(first + process for process in columns["process"])
        yield {"key": ["null"] * len(columns["process"]), **columns}


def _moments(rows: list[Row]) -> Iterator[float]:
    for row in rows:
        yield row[3]
        yield row[4]


class _Log:
    """One log and all who use it. Moments are counted in sends; a value is its send's number."""

    def __init__(self, recipe: Recipe, key: int) -> None:
        self._recipe = recipe
        self._key = name_of(key)
        self._rng = random.Random(f"{recipe.seed} {key}")
        self._faults = planted(recipe, key)
        self._crashed = recipe.processes
        """The name of the next process: those that crashed do not come again."""
        self._log: Pairs = []
        """What the next poll returns."""
        self._offset = 0

    def rows(self) -> Iterator[Row]:
        """All operations."""
        processes = list(range(self._recipe.processes))
        count = self._recipe.operations_a_key
        consumer = self._fresh()
        for value in range(count):
            yield from self._send(value, processes)
            if (value + 1) % POLL_SENDS == 0 or value + 1 == count:
                yield from self._poll(value, consumer)

    def _fresh(self) -> int:
        self._crashed += 1
        return self._crashed - 1

    def _moment(self, value: int) -> tuple[float, float]:
        """(invoked, completed); the same process' next send comes after that."""
        reach = self._recipe.processes / 2
        return value - self._rng.random() * reach, value + self._rng.random() * reach

    def _send(self, value: int, processes: list[int]) -> Iterator[Row]:
        """The send of a value, unless nobody is to have sent it."""
        fault = self._faults.get(value)
        known = value - value % POLL_SENDS + _MIDDLE in self._faults
        crashed = not known and self._rng.random() < self._recipe.crashes
        kind = "ok" if not crashed else self._rng.choice(("fail", "info"))
        written = kind == "ok" or (kind == "info" and self._rng.random() < 0.5)
        place = value % len(processes)
        if fault == ABORTED:
            kind = "fail"
        if fault != UNEXPECTED:
            asked = f'[["send","{self._key}",{value}]]'
            told = f'[["send","{self._key}",[{self._offset},{value}]]]'
            result = told if kind == "ok" else asked
            yield (processes[place], "send", kind, *self._moment(value), asked, result)
        if kind == "info":
            processes[place] = self._fresh()
        if written:
            self._append(value, fault)

    def _append(self, value: int, fault: str | None) -> None:
        if fault != LOST:
            self._log.append((self._offset, value))
        self._offset += 1
        if fault == DUPLICATE:
            self._log.append((self._offset, value))
            self._offset += 1

    def _poll(self, last: int, consumer: int) -> Iterator[Row]:
        """The poll of what the sends up to this one have written, and those that show a fault."""
        records, self._log = self._log, []
        begin = last + self._recipe.processes / 2
        fault = last + 1 - POLL_SENDS + _MIDDLE
        kind = self._faults.get(fault)
        yield self._polled(consumer, begin, 0, records)
        if kind in (BACKWARDS, SKIPPED, INCONSISTENT):
            yield from self._shown(kind, fault, begin, records)

    def _shown(self, kind: str, fault: int, begin: float, records: Pairs) -> Iterator[Row]:
        """What another consumer sees."""
        other = self._fresh()
        at = [value for _, value in records].index(fault)
        if kind == INCONSISTENT:
            # Sent by somebody who never learnt what became of it, and polled once.
            value = self._recipe.operations_a_key + fault
            asked = f'[["send","{self._key}",{value}]]'
            yield (self._fresh(), "send", "info", *self._moment(fault), asked, asked)
            yield self._polled(other, begin, 1, [(records[at][0], value)])
            return
        polls = (records[at : at + 2], records[at : at + 1])
        if kind == SKIPPED:
            polls = (records[at : at + 1], records[at + 2 : at + 3])
        for turn, mine in enumerate(polls, 1):
            yield self._polled(other, begin, turn, mine)

    def _polled(self, process: int, begin: float, turn: int, records: Pairs) -> Row:
        """A poll. Those of one moment follow each other by their turns, well before the next."""
        shown = ",".join(f"[{offset},{value}]" for offset, value in records)
        result = f'[["poll",{{"{self._key}":[{shown}]}}]]'
        invoked = begin + turn + 0.1
        return process, "poll", "ok", invoked, invoked + 0.5, '[["poll"]]', result
