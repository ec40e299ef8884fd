"""Partitions of a topic's image, as the checkers of metadata know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.checkers.replication.metadata import Assignment

if TYPE_CHECKING:
    from raftctl.metadata.image import TopicImage


def assignment_of(topic: TopicImage, number: int) -> Assignment:
    """Who has the topic's partition of that number."""
    one = topic.partitions[number]
    return Assignment(
        partition=f"{topic.name}-{number}/{topic.topic_id}",
        replicas=one.replicas,
        isr=one.isr,
        leader=one.leader,
        leader_epoch=one.leader_epoch,
        partition_epoch=one.partition_epoch,
        eligible=one.elr,
    )
