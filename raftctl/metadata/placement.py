"""Where the replicas of a new partition go (row C4): spread over brokers and racks, leaders evenly.

The usable brokers stand in a ring, neighbours from different racks. The first replica, which is the
preferred leader, goes round the ring from a random start; the others follow it at a distance that
grows with each round, so that the followers of one broker's leaders are spread as well. A replica
takes a rack that the partition does not have yet as long as there is one. Fenced brokers get
replicas only where there are too few others, and are never first.
Source: KIP-36 (racks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from raftctl.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A registered broker as a place for replicas. None is a rack like any other."""

    broker_id: int
    rack: str | None
    active: bool


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Every registered broker as a place for replicas, in order of their ids."""
    brokers = (image.brokers[broker_id] for broker_id in sorted(image.brokers))
    return [UsableBroker(one.broker_id, one.rack, one.active) for one in brokers]


def place_replicas(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first.

    KafkaError(INVALID_REPLICATION_FACTOR) if there are not enough brokers or all are fenced.
    """
    known = list(brokers)
    active = _ring([broker for broker in known if broker.active])
    fenced = _ring([broker for broker in known if not broker.active])
    if replication_factor > len(known):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} cannot be reached: only {len(known)} "
            "broker(s) are registered",
        )
    if not active:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are fenced")
    start, shift = rng.randrange(len(active)), rng.randrange(len(active))
    racks = len({broker.rack for broker in active})
    count = min(replication_factor, len(active))
    placed = []
    for number in range(partitions):
        first, rounds = (start + number) % len(active), number // len(active)
        # A whole rack is skipped at a time, so that the next round meets other brokers first.
        others = _others(active, first, (shift + rounds) * racks)
        spare = (fenced[(number + i) % len(fenced)] for i in range(replication_factor - count))
        chosen = _choose(active[first], others, count, racks)
        placed.append((*chosen, *(broker.broker_id for broker in spare)))
    return placed


def _ring(brokers: list[UsableBroker]) -> list[UsableBroker]:
    """One broker of each rack in turn, so that neighbours are in different racks."""
    racks: dict[str | None, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda one: (one.rack or "", one.broker_id)):
        racks.setdefault(broker.rack, []).append(broker)
    rounds = max(map(len, racks.values()), default=0)
    return [rack[i] for i in range(rounds) for rack in racks.values() if i < len(rack)]


def _others(ring: list[UsableBroker], first: int, shift: int) -> Iterator[UsableBroker]:
    """All brokers of the ring but the first, from a distance that `shift` sets."""
    distances = len(ring) - 1
    for step in range(distances):
        yield ring[(first + 1 + (shift + step) % distances) % len(ring)]


def _choose(
    first: UsableBroker, others: Iterable[UsableBroker], count: int, racks: int
) -> list[int]:
    """`first` and those of the others that bring a new rack; then the others as they come."""
    chosen, passed_over = [first.broker_id], []
    used = {first.rack}
    for broker in others:
        if len(chosen) == count:
            break
        if len(used) == racks or broker.rack not in used:
            chosen.append(broker.broker_id)
            used.add(broker.rack)
        else:
            passed_over.append(broker.broker_id)
    return chosen + passed_over[: count - len(chosen)]
