"""Every file that a controller keeps, and a disk that refuses it: the node ends and names the file.

What was answered before is there when the disk is well again, whichever call failed; that the
error was reported to nobody else is what makes it safe (rows Q3 and Q12).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator._errno import os_error
from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.disk import no_fault
from jepsen.simulator.world import World
from raftctl.errors import ErrorCode
from raftctl.metadata.requests.cluster import RegisterBrokerResponse
from raftctl.rpc import RpcError
from raftctl.storage import METADATA_LOG_NAME
from tests.unit.raftctl.node.nodes import Operator, broker_ids, registration, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = "controller-101"
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.log.segment.bytes": "400",
    "metadata.max.retention.bytes": "0",
}
"""So that segments and snapshots come and go."""
ASKED_MAX = 100
ANSWER_MS = 500


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=5, tolerated=(OSError,)) as made:
        yield made


async def registered(operator: Operator, cluster: SimCluster, broker_id: int) -> bool:
    """Whether the registration was acknowledged."""
    try:
        answer = await operator.voters[101].call(registration(cluster, broker_id), ANSWER_MS)
    except RpcError:
        return False
    return isinstance(answer, RegisterBrokerResponse) and answer.error == ErrorCode.NONE


@pytest.mark.req("Q3", "Q12")
@pytest.mark.parametrize(
    ("operation", "number", "file"),
    [
        ("write", errno.ENOSPC, "quorum-state.tmp"),
        ("sync", errno.EIO, "quorum-state.tmp"),
        ("name", errno.ENOSPC, "quorum-state.tmp"),
        ("sync_directory", errno.EIO, METADATA_LOG_NAME),
        ("open", errno.ENOSPC, ".log"),
        ("write", errno.ENOSPC, ".log"),
        ("sync", errno.EIO, ".log"),
        ("name", errno.EIO, ".log"),
        ("write", errno.ENOSPC, "recovery-point"),
        ("write", errno.ENOSPC, ".checkpoint.part"),
        ("sync", errno.EIO, ".checkpoint.part"),
        ("name", errno.ENOSPC, ".checkpoint.part"),
        ("name", errno.EIO, ".checkpoint"),
    ],
)
def test_a_disk_error_ends_the_node_and_loses_nothing_that_was_answered(
    world: World, operation: str, number: int, file: str
) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0, overrides=OFTEN)
    cluster.start_all()
    disk = world.node(NODE).disk

    def failing(asked: str, path: str) -> None:
        if asked == operation and path.endswith(file):
            raise os_error(number, path)

    async def story(operator: Operator) -> None:
        await operator.register(1)
        world.kill(NODE)
        disk.fault = failing
        cluster.start(NODE)
        process = world.node(NODE).process
        assert process is not None
        asked = iter(range(2, ASKED_MAX))
        answered = {1}
        while not process.done.done():
            broker_id = next(asked)
            if await registered(operator, cluster, broker_id):
                answered.add(broker_id)
        error = process.done.exception()
        assert isinstance(error, OSError)
        assert (error.errno, file in str(error)) == (number, True)

        disk.fault = no_fault
        disk.crash()
        cluster.start(NODE)
        leader = await operator.leader()
        assert answered <= set(broker_ids((await operator.statuses())[leader]))

    tell(world, cluster, story)
