"""Do replicas hold the same? At the same offset of a partition they must have the same record.

Where a log has been compacted, or its start or end is another, a replica lacks offsets that others
have: that is no disagreement. Logs are to be dumped when all replicas have caught up, since one
that was cut off may hold what was never committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import Anomaly, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIVERGED = "diverged-record"
NOTHING = "no record is held by two replicas"
SHOWN_MAX = 100


def check_replicas(held: Mapping[str, Iterable[tuple[str, int, str]]]) -> Verdict:
    """Of each replica, by its name, the (partition, offset, record as text) that it holds."""
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
    """That replicas, by name, hold other records there."""
    detail: dict[str, Any] = {"partition": partition, "offset": offset}
    return Anomaly(DIVERGED, detail | {"records": dict(sorted(records.items()))})


def verdict_of(found: Iterable[Anomaly], replicas: int, shared: int, wrong: int) -> Verdict:
    """From the first places that differ, how many are held by several, and how many differ."""
    why = "" if shared else NOTHING
    return judge(found, why_unknown=why, replicas=replicas, shared=shared, diverged=wrong)
