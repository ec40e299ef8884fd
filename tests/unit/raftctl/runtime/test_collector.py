"""What survived a long full collection is not looked at by the next."""

from __future__ import annotations

import gc
import weakref
from itertools import count

import pytest

from raftctl.runtime import look_now
from raftctl.runtime._collector import PAUSE_S, Collector

pytestmark = pytest.mark.req("C13")


@pytest.mark.parametrize(("step_s", "frozen"), [(PAUSE_S / 2, False), (PAUSE_S * 2, True)])
def test_what_a_long_collection_leaves_is_frozen(step_s: float, *, frozen: bool) -> None:
    ticks = count()
    thresholds = gc.get_threshold()
    collector = Collector(lambda: next(ticks) * step_s)
    collector.start()
    try:
        before = gc.get_freeze_count()
        kept = [[number] for number in range(1000)]
        gc.collect()
        assert (gc.get_freeze_count() >= before + len(kept)) == frozen
    finally:
        collector.stop()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == thresholds


def test_young_collections_freeze_nothing() -> None:
    ticks = count()
    collector = Collector(lambda: next(ticks) * PAUSE_S * 2)
    collector.start()
    try:
        before = gc.get_freeze_count()
        gc.collect(1)
        assert gc.get_freeze_count() <= before
    finally:
        collector.stop()


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_looked_for_when_asked_in_a_process_that_is_a_node() -> None:
    def survives() -> bool:
        knot = weakref.ref(Knot())
        look_now()
        return knot() is not None

    collector = Collector(lambda: 0.0)
    gc.disable()
    try:
        assert survives()
        collector.start()
        assert not survives()
        collector.stop()
        assert survives()
    finally:
        gc.enable()
