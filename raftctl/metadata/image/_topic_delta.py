"""What changed in one topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from immutables import Map

from raftctl.metadata.image._image import PartitionImage, TopicImage
from raftctl.metadata.image._maps import updated

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class TopicDelta:
    """What changed in a topic that exists after the change."""

    topic_id: UUID
    name: str
    before: TopicImage | None
    """None if the topic is new."""
    whole: TopicImage | None = None
    """A new topic from another image, as long as nobody has asked for its partitions."""
    _partitions: dict[int, PartitionImage] = field(default_factory=dict)

    @property
    def partitions(self) -> dict[int, PartitionImage]:
        """The changed and new partitions as they are after the change, by id."""
        if self.whole is not None:
            self._partitions, self.whole = dict(self.whole.items()), None
        return self._partitions

    def changes(self) -> Iterator[tuple[int, PartitionImage]]:
        """The items of `partitions`, without a copy of what is taken over from another image."""
        return iter(self._partitions.items()) if self.whole is None else self.whole.items()

    def partition(self, partition_id: int) -> PartitionImage | None:
        """The partition as the records so far have it, changed or not."""
        changed = self.partitions.get(partition_id)
        if changed is None and self.before is not None:
            return self.before.partitions.get(partition_id)
        return changed

    def apply(self) -> TopicImage:
        """The topic after the change."""
        if self.whole is not None:
            return self.whole
        partitions = _NO_PARTITIONS if self.before is None else self.before.partitions
        return TopicImage(self.name, self.topic_id, updated(partitions, self._partitions))


_NO_PARTITIONS: Map[int, PartitionImage] = Map()
