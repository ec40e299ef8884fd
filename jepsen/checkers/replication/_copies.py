"""Comparison of the replicas of a log: batch by batch from files, or record by record from dumps.

Files show more than dumps: the epoch of the leader that appended a batch, and the end of a log.
Dumps compare records at equal offsets only. An offset that one replica lacks is no disagreement,
since its log may have been compacted, or begin or end elsewhere. Dump when all replicas have
caught up: one that was cut off may hold records that were never committed.

Sources: log matching, Raft figure 3; KIP-101.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.verdict import Anomaly, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

DIVERGED_BATCH = "diverged-batch"
LACKS_COMMITTED = "lacks-committed"


class HeldBatch(NamedTuple):
    """A batch as it stands in the files of a replica, or a record of a log that is compacted."""

    base_offset: int
    end_offset: int
    """Behind its last record."""
    epoch: int
    """The epoch of the leader that appended it."""
    data: bytes
    """All of it."""
    place: str
    """File and byte, for people."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The log of one replica."""

    start: int
    """The offset at which its first segment begins."""
    batches: Iterable[HeldBatch]
    """Whole ones, in order; read once."""


class Compared(NamedTuple):
    """Result of a comparison."""

    shared: int
    """The number of batches that two copies or more hold."""
    anomaly: Anomaly | None
    """The first disagreement, where the comparison ended."""


def check_copies(
    log: str, copies: Mapping[str, Copy], committed: int, *, partial: bool = False
) -> Compared:
    """Compare the copies of a log, by the names of their replicas, batch by batch.

    Batches at one offset are equal if they are of one epoch, or if it is below `committed`: other
    tails are of leaders that were replaced. Below `committed` no copy lacks what another has, but
    at its start, or where copies may be `partial`: compacted, or behind the others.
    """
    rest = {name: iter(copy.batches) for name, copy in copies.items()}
    heads = {name: next(batches, None) for name, batches in rest.items()}
    shared = 0
    while (found := _lowest(heads)) is not None:
        base, here = found
        lacking = [name for name, copy in copies.items() if name not in here and copy.start <= base]
        if _differ(here, committed):
            return Compared(shared, _anomaly(DIVERGED_BATCH, log, here, ()))
        if lacking and base < committed and not partial:
            return Compared(shared, _anomaly(LACKS_COMMITTED, log, here, lacking))
        if len({batch.data for batch in here.values()}) > 1:
            break  # These tails go different ways, and all that follows does.
        shared += len(here) > 1
        for name in here:
            heads[name] = next(rest[name], None)
    return Compared(shared, None)


def _lowest(heads: Mapping[str, HeldBatch | None]) -> tuple[int, dict[str, HeldBatch]] | None:
    """The lowest offset that is next in a copy, and the batches there; None at the end of all."""
    left = {name: batch for name, batch in heads.items() if batch is not None}
    if not left:
        return None
    base = min(batch.base_offset for batch in left.values())
    return base, {name: batch for name, batch in left.items() if batch.base_offset == base}


def _differ(here: Mapping[str, HeldBatch], committed: int) -> bool:
    """Whether batches of one offset differ that may not."""
    by_epoch: dict[int, bytes] = {}
    below = next(iter(here.values())).base_offset < committed
    for batch in here.values():
        if by_epoch.setdefault(0 if below else batch.epoch, batch.data) != batch.data:
            return True
    return False


def _anomaly(name: str, log: str, here: Mapping[str, HeldBatch], lacking: Iterable[str]) -> Anomaly:
    copies = {
        replica: {
            "end_offset": batch.end_offset,
            "epoch": batch.epoch,
            "bytes": len(batch.data),
            "place": batch.place,
        }
        for replica, batch in sorted(here.items())
    }
    offset = next(iter(here.values())).base_offset
    return Anomaly(name, {"log": log, "offset": offset, "copies": copies, "lacking": [*lacking]})


DIVERGED = "diverged-record"
NOTHING = "no record is held by two replicas"
SHOWN_MAX = 100


def check_replicas(held: Mapping[str, Iterable[tuple[str, int, str]]]) -> Verdict:
    """Judge the (partition, offset, record as text) that each replica holds, by its name."""
    first: dict[tuple[str, int], dict[str, str]] = {}
    shared = 0
    for replica, records in held.items():
        for partition, offset, record in records:
            known = first.setdefault((partition, offset), {})
            shared += len(known) == 1 and replica not in known
            known[replica] = max(record, known.get(replica, ""))
    wrong = [place for place, known in first.items() if len(set(known.values())) > 1]
    found = [diverged(*place, first[place]) for place in sorted(wrong)[:SHOWN_MAX]]
    return verdict_of(found, len(held), shared, len(wrong))


def diverged(partition: str, offset: int, records: Mapping[str, str]) -> Anomaly:
    """Return the anomaly that replicas, by name, hold different records at an offset."""
    detail: dict[str, Any] = {"partition": partition, "offset": offset}
    return Anomaly(DIVERGED, detail | {"records": dict(sorted(records.items()))})


def verdict_of(found: Iterable[Anomaly], replicas: int, shared: int, wrong: int) -> Verdict:
    """Return the verdict on replicas, of which `found` has the first differences.

    `shared` is the number of places that several hold, `wrong` the number that differ.
    """
    why = "" if shared else NOTHING
    return judge(found, why_unknown=why, replicas=replicas, shared=shared, diverged=wrong)
