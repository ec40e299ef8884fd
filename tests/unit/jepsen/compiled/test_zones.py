"""Zones of registers whose writes are unique, beside trying everything."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.linearizable.models import Register
from jepsen.compiled import codes
from tests.unit.jepsen.compiled.registers import NIL, table_of
from tests.unit.jepsen.histories import history, linearizable_by_force, made_history

pytestmark = [
    pytest.mark.req("J4"),
    # Whoever comes first compiles, which takes seconds of a processor that others may use.
    pytest.mark.timeout(900),
]
np = pytest.importorskip("numpy", reason="needs raftctl[fast]")
zones = pytest.importorskip("jepsen.compiled.registers", reason="needs raftctl[fast]")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.history import Op

UNIQUE = 10**12


def _settled(histories: Sequence[list[Op]]) -> list[bool]:
    starts, rows = table_of(histories, Register())
    verdicts = np.full(len(histories), codes.OPEN, np.int8)
    zones.judge_zones(starts, rows, NIL, verdicts)
    return [verdict == codes.VALID for verdict in verdicts]


def _made(rng: random.Random) -> list[Op]:
    """A history with unique writes, in which some reads have perhaps found another value."""
    lines = made_history(
        rng,
        operation_count=rng.choice((4, 6, 8)),
        concurrency=rng.choice((2, 3, 4)),
        domain=UNIQUE,
        crashes=rng.choice((0.0, 0.1, 0.3)),
        functions=("read", "write"),
    )
    values = [None, *(op.value for op in lines if op.f == "write" and op.type == "invoke")]
    reads = [op.index for op in lines if op.f == "read" and op.type == "ok"]
    for index in rng.sample(reads, min(len(reads), rng.choice((0, 1, 1, 2)))):
        lines[index] = replace(lines[index], value=rng.choice(values))
    return lines


def test_zones_settle_what_is_linearizable_and_nothing_else() -> None:
    rng = random.Random(4)
    histories = [_made(rng) for _ in range(1_500)]
    expected = [linearizable_by_force(lines, Register()) for lines in histories]
    assert _settled(histories) == expected
    assert 400 < sum(expected) < 1_100


def test_what_zones_do_not_know_is_left() -> None:
    written = (0, "invoke", "write", 1), (0, "ok", "write", 1)
    cas = (0, "invoke", "cas", [1, 2]), (0, "ok", "cas", [1, 2])
    first = (0, "invoke", "write", None), (0, "ok", "write", None)
    histories = [written, written * 2, (*written, *cas), first]
    assert _settled([history(*lines) for lines in histories]) == [True, False, False, False]
