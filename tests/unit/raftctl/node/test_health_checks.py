"""What keeps a broker from being ready, by the newest image."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftctl.node._health_checks import problems_of_broker, replicas_out_of_sync

pytestmark = pytest.mark.req("O3")


def image_of(*records: Any) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    return delta.apply(len(records), 1, 0)


def broker(*, fenced: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(1, UUID(int=1), (), "", fenced=fenced)


def names(image: MetadataImage, *, session: bool = True) -> list[str]:
    return [one.name for one in problems_of_broker(1, image, lambda: session)]


def test_a_broker_is_registered_unfenced_staying_and_has_a_session() -> None:
    assert names(image_of()) == ["not_registered"]
    assert names(image_of(broker(fenced=True))) == ["fenced"]
    assert names(image_of(broker(fenced=False))) == []
    assert names(image_of(broker(fenced=False)), session=False) == ["no_session"]
    leaving = BrokerRegistrationChangeRecord(1, 0, in_controlled_shutdown=True)
    assert names(image_of(broker(fenced=False), leaving)) == ["shutting_down"]


async def test_replicas_of_the_broker_out_of_sync_are_counted() -> None:
    topic = UUID(int=5)

    def partition(number: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionRecord:
        return PartitionRecord(topic, number, replicas, isr, isr[0], 0, 0)

    image = image_of(
        TopicRecord("t", topic),
        partition(0, (1, 2), (1, 2)),
        partition(1, (2, 1), (2,)),
        partition(2, (2, 3), (2,)),
    )
    (problem,) = await replicas_out_of_sync(1, image)
    assert problem.message.startswith("1 replicas")
    assert await replicas_out_of_sync(2, image) == []
