"""Replicas that an administrator chooses: may they be a partition's?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.image import MetadataImage


def check_assignments(
    image: MetadataImage, assignments: Sequence[tuple[int, ...]], first_id: int, count: int
) -> None:
    """KafkaError(INVALID_REPLICA_ASSIGNMENT) unless each partition from `first_id` on has `count`

    replicas, on brokers that are registered, of which one can lead at once.
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
    """KafkaError(INVALID_REPLICA_ASSIGNMENT) unless these are different, registered brokers."""
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
    """The error of an assignment that cannot be."""
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
