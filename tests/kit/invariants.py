"""Checks the invariants of the broker's cores after each of their events, whatever the test.

`watched` wraps the methods of classes that have `invariants()`. Only the outermost call on an
object is an event: within one, a core may be between two of its states. An event that raises is
not checked, because a disk that refused may leave a log half done.
"""

from __future__ import annotations

import functools
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from broker.log._log_manager import LogManager
from broker.log.partition_log._partition_log import PartitionLog
from broker.replication._replica_manager import ReplicaManager
from broker.replication.fetcher._fetcher import Fetchers
from broker.replication.partition._fetch_session_index import FetchSessionIndex
from broker.replication.partition._partition import Partition
from broker.replication.partition._partition_state import PartitionState
from broker.replication.partition._throttle import SampledRate
from broker.replication.purgatory._purgatory import Purgatory, TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

EVENTS: Mapping[type, str] = {
    PartitionLog: (
        "append_as_leader append_marker append_as_follower roll truncate_to restart_at"
        " advance_log_start replace_segments flush_plan flushed adopt"
    ),
    LogManager: "create delete identify keep_one truncated move _take_moved _went_offline",
    PartitionState: (
        "become_leader become_follower resign follower_fetched advance_high_watermark"
        " follow_high_watermark truncated propose_expansion propose_shrinking isr_committed"
        " proposal_refused"
    ),
    Partition: (
        "append delete_records advance follower_fetched append_fetched truncate_to_agree align_with"
    ),
    FetchSessionIndex: "want forget had_records close begin end mark_idle mark_dirty",
    SampledRate: "record per_second",
    TimingWheel: "add advance",
    Purgatory: "wait watch wake close",
    Fetchers: "touch",
    ReplicaManager: (
        "apply_delta append fetch delete_records _apply _flushed _isr_answered log_moved"
        " _take_offline"
    ),
}
"""The events of each core; the private ones are called by the event loop, or by a task."""


@contextmanager
def watched(events: Mapping[type, str] = EVENTS) -> Iterator[None]:
    """Check the invariants of each class after each of these methods; InvariantViolation."""
    originals = [
        (core, name, vars(core)[name]) for core, names in events.items() for name in names.split()
    ]
    under_way: Counter[int] = Counter()
    for core, name, original in originals:
        setattr(core, name, _checked(original, under_way))
    try:
        yield
    finally:
        for core, name, original in originals:
            setattr(core, name, original)


def _checked(event: Callable[..., Any], under_way: Counter[int]) -> Callable[..., Any]:
    @functools.wraps(event)
    def checked(core: Any, *args: Any, **named: Any) -> Any:
        key = id(core)
        under_way[key] += 1
        try:
            result = event(core, *args, **named)
        finally:
            under_way[key] -= 1
            if not under_way[key]:
                del under_way[key]
        if key not in under_way:
            core.invariants()
        return result

    return checked
