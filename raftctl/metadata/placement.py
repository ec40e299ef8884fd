"""Placement of the replicas of new partitions: over brokers and racks, leaders evenly (row C4).

The active brokers form a ring in which neighbours are in different racks. The first replica of each
partition, its preferred leader, moves round the ring from a random start. The other replicas follow
at a distance that grows with each round, so the followers of one broker's leaders are spread as
well. A replica is placed in a rack that the partition does not use yet, as long as there is one.
Fenced brokers get replicas only if there are too few active ones, and never the first.

The topic's partitions are placed together. Placed one by one, from a random start each, some
brokers would get several leaders more than others.

An administrator may choose the replicas instead. They are checked, and never moved: different,
registered brokers, and where they lead at once, at least one that is active.

Sources: KIP-36 (racks); Kafka's `StripedReplicaPlacer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from raftctl.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """Registered broker as a target for replicas. A rack of None is a rack like any other."""

    broker_id: int
    rack: str | None
    active: bool


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Return every registered broker, in order of their ids."""
    brokers = (image.brokers[broker_id] for broker_id in sorted(image.brokers))
    return [UsableBroker(broker.broker_id, broker.rack, broker.active) for broker in brokers]


def place_replicas(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each of `partitions` new partitions, the preferred leader first.

    Raises KafkaError(INVALID_REPLICATION_FACTOR) if fewer than `replication_factor` brokers are
    registered, or all of them are fenced.
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
        # All racks are skipped at a time, so that the next round begins in the same rack with
        # another broker. By one broker less or more, the rack would change and the broker recur.
        chosen = _choose(active, first, (shift + rounds) * racks, count, racks)
        spare = (fenced[(number + i) % len(fenced)] for i in range(replication_factor - count))
        placed.append((*chosen, *(broker.broker_id for broker in spare)))
    return placed


def _ring(brokers: list[UsableBroker]) -> list[UsableBroker]:
    """Return the brokers, one of each rack in turn, so that neighbours are in different racks."""
    racks: dict[str | None, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.broker_id)):
        racks.setdefault(broker.rack, []).append(broker)
    rounds = max(map(len, racks.values()), default=0)
    return [rack[i] for i in range(rounds) for rack in racks.values() if i < len(rack)]


def _choose(ring: list[UsableBroker], first: int, shift: int, count: int, racks: int) -> list[int]:
    """Return the ids of `count` brokers: the one at `first`, then others from a distance on.

    `shift` sets the distance. Brokers of a rack that is not used yet come before all others; there
    are `racks` racks.
    """
    chosen, passed_over = [ring[first].broker_id], []
    used = {ring[first].rack}
    distances = len(ring) - 1
    for step in range(distances):
        if len(chosen) == count:
            break
        broker = ring[(first + 1 + (shift + step) % distances) % len(ring)]
        if len(used) == racks or broker.rack not in used:
            chosen.append(broker.broker_id)
            used.add(broker.rack)
        else:
            passed_over.append(broker.broker_id)
    return chosen + passed_over[: count - len(chosen)]


# --- explicit assignments ------------------------------------------------------------------------


def check_assignments(
    image: MetadataImage, assignments: Sequence[tuple[int, ...]], first_id: int, count: int
) -> None:
    """Check replicas that an administrator has chosen for the partitions from `first_id` on.

    Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) unless each partition has `count` different
    replicas on registered brokers, at least one of them active: it leads at once.
    """
    for partition_id, replicas in enumerate(assignments, start=first_id):
        check_replicas(image, partition_id, replicas)
        if len(replicas) != count:
            raise bad_assignment(
                f"Partition {partition_id} has {len(replicas)} replica(s), the others have {count}"
            )
        if not any(image.brokers[replica].active for replica in replicas):
            raise bad_assignment(
                f"All brokers of partition {partition_id} are fenced or in controlled shutdown"
            )


def check_replicas(image: MetadataImage, partition_id: int, replicas: tuple[int, ...]) -> None:
    """Check replicas that an administrator has chosen for one partition.

    Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) unless they are different, registered brokers.
    """
    if not replicas:
        raise bad_assignment(f"Partition {partition_id} has no replicas")
    if len(set(replicas)) < len(replicas):
        raise bad_assignment(f"Partition {partition_id} has two replicas on one broker")
    for replica in replicas:
        if replica not in image.brokers:
            raise bad_assignment(
                f"Partition {partition_id} is assigned to broker {replica}, which is not registered"
            )


def bad_assignment(message: str) -> KafkaError:
    """Return the error of an assignment that is not possible."""
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
