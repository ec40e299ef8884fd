"""Logs of partitions that were deleted, or moved away, while their broker was down.

Asked of the first image that a broker is given. That holds its own registration, which is newer
than all that the broker had when it stopped: what such an image does not know is gone. Their files
are only set aside, since a quorum that was rebuilt from one replica may have forgotten a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.log import LogManager
    from broker.types import TopicPartition
    from raftctl.metadata.image import MetadataImage


def strays(logs: LogManager, image: MetadataImage, broker_id: int) -> list[TopicPartition]:
    """The partitions that have a log here and should not. One whose log has no topic id is left
    alone: a crash kept it from being written, and the next replica of the partition takes it up.
    """
    found = []
    for partition in logs.partitions:
        log = logs.get(partition)
        if log is None or log.topic_id is None:
            continue
        topic = image.topics.by_id(log.topic_id)
        here = None if topic is None else topic.partitions.get(partition.partition)
        if here is None or broker_id not in here.replicas:
            found.append(partition)
    return found
