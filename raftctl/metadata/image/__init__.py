"""Image of the cluster's metadata at one offset, and the delta between two images.

`MetadataImage` is immutable and built from persistent maps, so two images share whatever did
not change. Going back to an older image costs one reference. `MetadataDelta` replays records
on top of an image, says what they changed, and makes the next image with `apply`. There is no
other way from records to state: the active controller, standby voters and brokers all replay.

    image ──MetadataDelta(image)──▶ replay(record, offset) … ──apply(offset, …)──▶ next image

A subscriber gets `publish(delta, image)` and never compares images. A replica that loads a
snapshot has two images without the records between them; `lead` makes the delta for it.

Invariants, checked while replaying:

* a record refers only to a broker, topic, partition or session that exists;
* a topic's name and id are used once, its partitions are numbered from 0 without gaps;
* partition epochs and producer ids never go back;
* a broker's record names the epoch of its current incarnation.

A violation is a bug of the controller that wrote the record, never an operating error.

Public modules: `types` (the parts of an image) and `coordination` (sessions and locks).

The package knows nothing about who writes records, where they are stored or who subscribes.

Sources: KIP-500, KIP-631; Kafka's `org.apache.kafka.image`.
"""

from raftctl.metadata.image._delta import MetadataDelta, TopicDelta, lead
from raftctl.metadata.image._image import EMPTY_IMAGE, MetadataImage
from raftctl.metadata.image.types import BrokerImage, PartitionImage, TopicImage, TopicsImage

__all__ = [
    "EMPTY_IMAGE",
    "BrokerImage",
    "MetadataDelta",
    "MetadataImage",
    "PartitionImage",
    "TopicDelta",
    "TopicImage",
    "TopicsImage",
    "lead",
]
