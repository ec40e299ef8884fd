"""Offsets that consumer groups commit: what is read back must not be older than what was kept."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import Anomaly
from jepsen.history import OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jepsen.checkers.kafka.log import Call

NONE_COMMITTED = -1
COMMIT, COMMITTED = LOOKS = ("commit", "committed")


@dataclass(frozen=True, slots=True)
class _Access:
    """One commit or one look at a key's committed offset."""

    index: int
    begin: int
    end: float
    """Infinite if nobody knows when, or whether, it took effect."""
    offset: int


def offset_regressions(calls: Sequence[Call]) -> Iterator[Anomaly]:
    """`committed-offset-regression`: what is read had been replaced before by a higher offset.

    A commit of a lower offset is nobody's fault: whoever may have done it last is believed.
    """
    commits, reads = _accesses(calls, COMMIT), _accesses(calls, COMMITTED)
    for key, looks in reads.items():
        writes = commits.get(key, [])
        for look in (look for look in looks if look.end < float("inf")):
            best = _stale(look, writes)
            if best is not None:
                detail = {"key": key, "committed": best.offset, "found": look.offset}
                yield Anomaly("committed-offset-regression", detail, (best.index, look.index))


def _stale(look: _Access, writes: Sequence[_Access]) -> _Access | None:
    """The commit that the look should have seen, if no other explains what it saw."""
    above = [w for w in writes if w.end < look.begin and w.offset > look.offset]
    possible = [w for w in writes if w.offset == look.offset and w.begin < look.end]
    for source in possible:
        if not any(source.end < write.begin for write in above):
            return None
    return max(above, key=lambda write: write.offset, default=None)


def _accesses(calls: Sequence[Call], f: str) -> Mapping[Any, list[_Access]]:
    found: defaultdict[Any, list[_Access]] = defaultdict(list)
    for call in calls:
        if call.operation.invoke.f != f or call.type is OpType.FAIL:
            continue
        end = float(call.index) if call.ok else float("inf")
        # What was asked for is only known once it ended, also if nobody knows how.
        last = call.operation.completion or call.operation.invoke
        for key, offset in (last.value or {}).items():
            number = NONE_COMMITTED if offset is None else offset
            begin = call.operation.invoke.index
            found[hashable(key)].append(_Access(call.index, begin, end, number))
    return found
