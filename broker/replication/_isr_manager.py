"""Carries proposed ISR changes to the controller and its responses back (row R3, KIP-497).

Proposals of many partitions travel in one request, and one request is in flight at a time. A
partition has one open proposal, by its own state. One that is refused for a passing reason is sent
again, unless it has been superseded.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.replication.partition import IsrProposal, Partition
    from broker.types import TopicPartition
    from raftctl.plugins import BrokerContext

RETRY_BACKOFF_MS = 50
REQUEST_TIMEOUT_MS = 10_000
_ITEMS_MAX = 1_000
_AT_ONCE = 50
"""The number of responses that are applied before other tasks run: some milliseconds."""


class IsrManager:
    """The queue of proposals; `run` it as a task."""

    def __init__(self, context: BrokerContext, changed: Callable[[Partition], None]) -> None:
        """`changed` is called after an answer has changed a partition's ISR."""
        self._context = context
        self._changed = changed
        # Bounded by the number of partitions: each has one open proposal.
        self._waiting: dict[TopicPartition, tuple[IsrProposal, Partition]] = {}
        self._arrived = asyncio.Event()

    def submit(self, replica: Partition, proposal: IsrProposal) -> None:
        """Send the proposal with the next request."""
        self._waiting[replica.partition] = proposal, replica
        self._arrived.set()

    def invariants(self) -> None:
        """Check that a waiting proposal is that of its partition, and wakes the task."""
        for partition, (_, replica) in self._waiting.items():
            invariant(replica.partition == partition, "a proposal is of its partition")
        invariant(self._arrived.is_set() or not self._waiting, "a proposal that waits is sent")

    async def run(self) -> None:
        """Send the waiting proposals; until cancelled."""
        while True:
            await self._arrived.wait()
            if not await self._send():
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            if not self._waiting:
                self._arrived.clear()

    async def _send(self) -> bool:
        """Send one request; return whether nothing of it must be sent again."""
        batch = [self._waiting.pop(key) for key in list(self._waiting)[:_ITEMS_MAX]]
        batch = [(p, replica) for p, replica in batch if replica.state.proposal is p]
        if not batch:
            return True
        results = await self._ask(batch)
        retried = False
        for number, ((proposal, replica), result) in enumerate(zip(batch, results, strict=True)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._apply_result(replica, proposal, result):
                self.submit(replica, proposal)
                retried = True
        return not retried

    async def _ask(
        self, batch: list[tuple[IsrProposal, Partition]]
    ) -> list[AlterPartitionResult | None]:
        """Return the result of each proposal; None where none came."""
        context = self._context
        items = tuple(self._item(proposal, replica) for proposal, replica in batch)
        request = AlterPartitionRequest(context.config.node_id, context.broker_epoch(), items)
        nothing: list[AlterPartitionResult | None] = [None] * len(batch)
        try:
            response = await context.controller.call(request, REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            context.runtime.log.warning("isr_change_unanswered", error=error.code.name)
            return nothing
        if not isinstance(response, AlterPartitionResponse) or response.error:
            return nothing
        found = {(r.topic_id, r.partition_id): r for r in response.partitions}
        return [found.get((item.topic_id, item.partition_id)) for item in items]

    def _item(self, proposal: IsrProposal, replica: Partition) -> AlterPartitionItem:
        own = self._context.config.node_id
        return AlterPartitionItem(
            replica.topic_id,
            replica.partition.partition,
            proposal.leader_epoch,
            proposal.partition_epoch,
            tuple(
                (member, self._context.broker_epoch() if member == own else epoch)
                for member, epoch in proposal.members
            ),
        )

    def _apply_result(
        self, replica: Partition, proposal: IsrProposal, result: AlterPartitionResult | None
    ) -> bool:
        """Apply the controller's result; return whether to send the proposal again."""
        state = replica.state
        if result is None:
            return state.proposal is proposal
        if result.error is not ErrorCode.NONE:
            again = state.proposal_refused(proposal, result.error)
            self._log("isr_change_refused", replica, error=result.error.name, again=again)
            self._changed(replica)
            return again
        state.isr_committed(result.leader_epoch, result.partition_epoch, result.isr)
        self._log("isr_changed", replica, isr=list(result.isr))
        self._changed(replica)
        return False

    def _log(self, event: str, replica: Partition, **values: object) -> None:
        self._context.runtime.log.info(event, partition=str(replica.partition), **values)
