"""The delta between any two images leads from one to the other."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raftctl.metadata.image import EMPTY_IMAGE, MetadataImage
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    KvSessionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.kit.deltas import delta_between
from tests.unit.raftctl.metadata.test_delta import ENDPOINTS, applied

INCARNATION = UUID(int=99)
KEYS = st.sampled_from(("p", "q"))


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    records: list[Record] = [FeatureLevelRecord("metadata.version", draw(st.integers(1, 2)))]
    for broker_id in draw(st.sets(st.integers(1, 4))):
        epoch = draw(st.integers(1, 3))
        records.append(
            RegisterBrokerRecord(broker_id, INCARNATION, ENDPOINTS, None, broker_epoch=epoch)
        )
    for name in draw(st.sets(st.sampled_from("abc"))):
        topic_id = UUID(int=draw(st.integers(1, 2)) * 100 + ord(name))
        records.append(TopicRecord(name, topic_id))
        for partition in range(draw(st.integers(1, 3))):
            leader = draw(st.integers(1, 2))
            records.append(
                PartitionRecord(topic_id, partition, (1, 2), (1, 2), leader, leader, leader)
            )
        for key in draw(st.sets(st.sampled_from(("k", "l")))):
            value = draw(st.sampled_from("xy"))
            records.append(ConfigRecord(TOPIC_RESOURCE, name, key, value))
    keys = sorted(draw(st.sets(st.sampled_from(("k", "l", "m")))))
    records.extend(
        KvRecord(key, draw(st.sampled_from((b"v", b"w"))), draw(st.integers(1, 3))) for key in keys
    )
    return applied(*records, *draw(coordination(keys)))


@st.composite
def coordination(draw: st.DrawFn, keys: list[str]) -> list[Record]:
    """Sessions, some of the keys bound to them, and their places in queues for locks."""
    sessions = [UUID(int=number) for number in sorted(draw(st.sets(st.integers(1, 3))))]
    records: list[Record] = [
        KvSessionRecord(session, draw(st.sampled_from((1_000, 2_000)))) for session in sessions
    ]
    owned = sorted(draw(st.sets(st.sampled_from(keys)))) if keys and sessions else []
    records.extend(KvOwnerRecord(key, draw(st.sampled_from(sessions))) for key in owned)
    records.extend(
        KvLockRecord(lock, session, b"", draw(st.integers(1, 2)) * 10 + session.int)
        for session in sessions
        for lock in sorted(draw(st.sets(st.sampled_from(("x", "y")))))
    )
    return records


@pytest.mark.req("Q6")
@given(images(), images())
def test_the_difference_leads_from_one_image_to_the_other(
    old: MetadataImage, new: MetadataImage
) -> None:
    # Partitions are only ever added to a topic.
    for topic_id, topic in old.topics.topics.items():
        later = new.topics.by_id(topic_id)
        assume(later is None or len(later.partitions) >= len(topic.partitions))
    whole = delta_between(old, new).apply(100, new.epoch, new.timestamp_ms)
    assert list(whole.records()) == list(new.records())
    assert (whole.brokers, whole.topics, whole.configs) == (new.brokers, new.topics, new.configs)
    assert whole.kv == new.kv
    assert whole.coordination == new.coordination


@pytest.mark.req("Q6", "Q10")
def test_a_key_that_was_removed_is_gone_after_a_snapshot() -> None:
    old = applied(KvRecord("kept", b"1"), KvRecord("removed", b"1"))
    new = applied(KvRecord("kept", b"1"))
    assert delta_between(old, new).changed_kv == {"removed": None}


def test_the_difference_of_the_same_is_nothing() -> None:
    image = applied(ProducerIdsRecord(1, 1, 1000), image=EMPTY_IMAGE)
    delta = delta_between(image, image)
    assert delta.changed_brokers == {}
    assert delta.changed_topics == {}
    assert delta.changed_configs == {}
