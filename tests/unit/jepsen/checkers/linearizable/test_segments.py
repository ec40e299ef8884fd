"""Registers cut into parts: the verdicts of the whole."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain

import pytest

from jepsen.checkers.linearizable import Budget, check_key
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.linearizable.quiescence import ELSE, comes_through, parts, relation
from jepsen.history import operations
from tests.unit.jepsen.histories import history, made_history, spoiled

MODEL = Register(failed_cas_observes=True)


@pytest.mark.req("J3", "J7")
def test_parts_composed_have_the_verdict_of_the_whole() -> None:
    found: Counter[tuple[bool, bool]] = Counter()
    for seed in range(300):
        rng = random.Random(seed)
        lines = made_history(
            rng,
            operation_count=rng.randint(2, 60),
            concurrency=rng.randint(1, 4),
            crashes=rng.choice((0.0, 0.0, 0.05)),
        )
        if rng.random() < 0.6:
            lines = spoiled(rng, lines)
        mine = operations(lines)
        cut = list(parts(mine, MODEL))
        assert [one for part in cut for one in part] == mine
        # Several parts are a chunk, as a task gets them.
        chunks = [list(chain(*cut[at : at + 3])) for at in range(0, len(cut), 3)]
        relations = [relation(chunk, MODEL, Budget()) for chunk in chunks]
        valid = comes_through(MODEL.initial, relations)
        assert valid is check_key(None, mine, MODEL, Budget()).valid, f"seed {seed}"
        found[valid, len(chunks) > 1] += 1
    assert min(found[valid, True] for valid in (True, False)) > 50


@pytest.mark.req("J3", "J7")
def test_a_relation_tells_of_values_that_are_looked_for() -> None:
    lines = history(
        *((0, kind, "read", value) for kind, value in (("invoke", None), ("ok", 1))),
        *((0, kind, "cas", [1, 2]) for kind in ("invoke", "ok")),
    )
    found = relation(operations(lines), MODEL, Budget())
    assert found == {1: {2}, ELSE: frozenset()}
    nothing = history(*((0, kind, "cas", [1, 2]) for kind in ("invoke", "fail")))
    assert relation(operations(nothing), MODEL, Budget()) == {1: frozenset(), ELSE: {ELSE}}
