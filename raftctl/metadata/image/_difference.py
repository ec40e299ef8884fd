"""Delta between two images without the records that lead from one to the other.

A replica that has fetched a snapshot has two whole images, its own and the snapshot's. Its
subscribers expect a delta. The delta is computed by comparison, in pieces: a cluster may have
millions of partitions, and the node must keep answering the quorum meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metadata.image._delta import MetadataDelta
from raftctl.metadata.image._image import quota_order
from raftctl.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    KvRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image._image import MetadataImage, TopicImage
    from raftctl.metadata.records import Record


PIECE_PARTITIONS = 20_000
"""Partitions compared without a pause, about 12 ms. A topic is never divided."""


def delta_between(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """Return the delta that leads from `old` to `new`, to be published with `new`."""
    delta = MetadataDelta(old)
    for _ in lead(delta, new):
        pass
    return delta


def lead(delta: MetadataDelta, new: MetadataImage) -> Iterator[None]:
    """Make an empty delta lead from its image to `new`; yield between its pieces.

    First it removes everything that `new` lacks. Then it takes over the partitions that differ, and
    replays each other record of the new image that the old one does not have. A record of an image
    sets its object as a whole, so nothing else is needed.
    """
    old = delta.image
    for record in _removals(old, new):
        delta.replay(record, new.offset)
    removed = {topic.name for topic in delta.deleted_topics.values()}
    known = {*old.records_before_topics(), *old.records_after_topics()}
    for record in new.records_before_topics():
        if record not in known:
            delta.replay(record, new.offset)
    if old.topics.topics:
        yield from _lead_topics(delta, old, new)
    else:
        delta.add_topics(new.topics)
    for record in new.records_after_topics():
        # A topic's configs are removed with it, also if another topic has taken its name. Equal
        # configs of the new topic then have to be written again.
        lost = isinstance(record, ConfigRecord) and record.resource_name in removed
        if lost or record not in known:
            delta.replay(record, new.offset)


def _lead_topics(delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
    compared = len(old.topics.topics)  # so many were looked for to find those that are gone
    for topic in new.topics.in_order():
        _add_topic(delta, old.topics.by_id(topic.topic_id), topic)
        compared += len(topic.partitions)
        if compared >= PIECE_PARTITIONS:
            compared = 0
            yield


def _add_topic(delta: MetadataDelta, before: TopicImage | None, topic: TopicImage) -> None:
    if before is None:
        delta.add_topic(topic)
        return
    known = before.partitions
    changed = [number for number, partition in topic.items() if known.get(number) != partition]
    if changed:
        delta.change_topic(topic, changed)


def _removals(old: MetadataImage, new: MetadataImage) -> Iterator[Record]:
    for broker_id in sorted(old.brokers):
        if broker_id not in new.brokers:
            yield UnregisterBrokerRecord(broker_id, old.brokers[broker_id].broker_epoch)
    for controller_id in sorted(old.controllers):
        if controller_id not in new.controllers:
            yield UnregisterControllerRecord(controller_id)
    for topic in old.topics.in_order():
        if topic.topic_id not in new.topics.topics:
            yield RemoveTopicRecord(topic.topic_id)
    for resource_type, name in sorted(old.configs):
        for key in sorted(old.configs[resource_type, name]):
            if key not in new.config(resource_type, name):
                yield ConfigRecord(resource_type, name, key, None)
    for key in sorted(old.kv):
        if key not in new.kv:
            yield KvRecord(key, None)
    yield from old.coordination.removals(new.coordination)
    yield from _security_removals(old, new)


def _security_removals(old: MetadataImage, new: MetadataImage) -> Iterator[Record]:
    for entity in sorted(old.client_quotas, key=quota_order):
        kept = new.client_quotas.get(entity, ())
        for key in sorted(old.client_quotas[entity]):
            if key not in kept:
                yield ClientQuotaRecord(entity, key, None)
    for entry_id in sorted(old.acls):
        if entry_id not in new.acls:
            yield RemoveAccessControlEntryRecord(entry_id)
    for user, mechanism in sorted(old.scram):
        if (user, mechanism) not in new.scram:
            yield RemoveUserScramCredentialRecord(user, mechanism)
