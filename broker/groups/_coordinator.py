"""The group coordinator of one broker: shards of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator import Coordinator
from broker.groups._core import GroupCore
from broker.types import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from broker.coordinator import Replicas
    from raftctl.plugins import BrokerContext


def group_coordinator(context: BrokerContext, replicas: Replicas) -> Coordinator:
    """Return the coordinator of consumer groups of one broker."""
    config, runtime = context.config, context.runtime
    return Coordinator(
        CONSUMER_OFFSETS,
        config.node_id,
        lambda journal, _epoch: GroupCore(journal, config, lambda: str(runtime.uuid())),
        replicas,
        config,
        runtime.wall_ms,
        context.fail,
        runtime.log.bind(part="groups", node_id=config.node_id),
    )
