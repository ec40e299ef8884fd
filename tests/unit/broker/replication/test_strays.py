"""What became of a broker's replicas while it was down; and who leads, told in few lines."""

from __future__ import annotations

import fnmatch
import re
from uuid import UUID

import pytest

from broker.replication._partition_changes import NAMED_MAX
from raftctl.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import P0, TOPIC_ID, World, eventually

GONE, MOVED = UUID(int=21), UUID(int=22)


@pytest.mark.req("C3", "C7")
async def test_what_was_deleted_or_moved_while_a_broker_was_down_is_set_aside() -> None:
    async with World(brokers=2) as world:
        world.create_topic()
        for name, topic_id in (("gone", GONE), ("moved", MOVED)):
            replica = PartitionRecord(topic_id, 0, (1, 2), (1, 2), 1, 0, 0)
            world.controller.commit(TopicRecord(name, topic_id), replica)
        node = world.nodes[1]
        node.append(make_batch([b"kept"]))
        await node.stop()
        moved = PartitionChangeRecord(MOVED, 0, replicas=(2,), isr=(2,), leader=2)
        world.controller.commit(RemoveTopicRecord(GONE), moved)
        # Of the same name, and yet another topic.
        again = PartitionRecord(UUID(int=23), 0, (2,), (2,), 2, 0, 0)
        world.controller.commit(TopicRecord("gone", UUID(int=23)), again)
        await node.start()
        assert list(node.replicas.partitions) == [P0]
        assert node.replica().log.log_end_offset == 1

        def directories() -> list[str]:
            names = fnmatch.filter(node.files.names("/logs"), "*-0*")
            return [re.sub(r"[.][0-9a-f]{32}", "", name) for name in names]

        await eventually(lambda: directories() == ["gone-0-stray", "moved-0-stray", "t-0"])
        (facts,) = await node.replicas.log_directories()
        assert [one.partition for one in facts.logs] == [P0]
        await node.stop()
        await node.start()
        assert list(node.replicas.partitions) == [P0]


@pytest.mark.req("C5")
async def test_one_line_tells_of_all_that_changed_at_once() -> None:
    count = 3 * NAMED_MAX
    async with World(brokers=2) as world:
        node = world.nodes[1]
        world.create_topic(partitions=count)
        await eventually(lambda: len(node.replicas.partitions) == count)
        world.controller.commit(
            PartitionChangeRecord(TOPIC_ID, 0, leader=2),
            PartitionChangeRecord(TOPIC_ID, 1, leader=2),
        )
        first, second = (told for event, told in node.runtime.events if event == "roles_changed")
        assert (first["leading"], first["following"]) == (count, 0)
        assert len(first["partitions"]) == NAMED_MAX
        assert first["more"] == count - NAMED_MAX
        assert (second["leading"], second["following"]) == (0, 2)
        assert second["partitions"] == ["t-0@1", "t-1@1"]
        assert "more" not in second
