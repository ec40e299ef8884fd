"""A key judged while its history grows: at each look what the whole up to there shows."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.linearizable import Budget, Machine, check_key, nonlinearizable
from jepsen.checkers.linearizable import quiescence as standing
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.linearizable.quiescence import KeyCheckpoint, check_growing
from jepsen.history import Op, operations
from tests.unit.jepsen.histories import made_history, spoiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.checkers.linearizable import KeyResult
    from jepsen.history import Operation

MODEL = Register(failed_cas_observes=True)


class _Growing:
    """A history of which each look sees more."""

    def __init__(self) -> None:
        self.standing = KeyCheckpoint()
        self.needed: list[Operation] = []
        self._seen = 0

    def shows(self, lines: Sequence[Op]) -> tuple[object, ...]:
        """What is found when so many lines are there."""
        ends = [one for one in operations(lines) if one.completion is not None]
        came = [one for one in ends if one.completion and one.completion.index >= self._seen]
        opened = [one for one in operations(lines) if one.completion is None]
        mine = [*self.needed, *came, *opened]
        result, self.standing = check_growing(
            "x", self.standing, mine, MODEL, Budget(), Machine(MODEL)
        )
        self.needed = [one for one in mine[: len(mine) - len(opened)] if self.standing.needs(one)]
        self._seen = len(lines)
        return _told(result)


def _told(result: KeyResult) -> tuple[object, ...]:
    """The verdict, and where and how it shows; not in which order ways to get there are told."""
    detail = nonlinearizable(result).detail
    states = sorted(detail.get("possible-states", []))
    return result.valid, detail.get("operation"), detail.get("previous"), states


@pytest.mark.req("J4", "J7")
def test_each_look_shows_what_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "RECHECKED_OPERATIONS", 3)
    found: Counter[object] = Counter()
    for seed in range(150):
        rng = random.Random(seed)
        lines = made_history(
            rng,
            operation_count=rng.randint(2, 60),
            concurrency=rng.randint(1, 4),
            crashes=rng.choice((0.0, 0.0, 0.05)),
        )
        if rng.random() < 0.6:
            lines = spoiled(rng, lines)
        growing, length = _Growing(), 0
        while length < len(lines):
            length = min(len(lines), length + rng.randint(1, 12))
            whole = check_key("x", operations(lines[:length]), MODEL, Budget())
            assert growing.shows(lines[:length]) == _told(whole), f"seed {seed}, {length} lines"
            found[whole.valid, growing.standing.since > 0] += 1
    assert min(found[valid, True] for valid in (True, False)) > 50


@pytest.mark.req("J7")
def test_what_is_settled_need_not_be_kept() -> None:
    rng = random.Random(1)
    lines = made_history(rng, operation_count=3000, concurrency=2, crashes=0.0)
    growing = _Growing()
    for length in range(500, len(lines), 500):
        growing.shows(lines[:length])
        assert len(growing.needed) <= standing.RECHECKED_OPERATIONS
