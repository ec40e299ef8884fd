"""What a broker reports to the controller about its replicas: proposed ISRs, and directories.

Reports of many partitions travel in one request, and one request of each kind is in flight at a
time. So a broker that loses thousands of followers at once sends a few requests, not thousands. A
partition has one report of a kind; a newer one takes its place, also while the older one travels.
Refused reports are sent again until they are accepted or superseded.

Source: KIP-497 (AlterPartition, row R3), KIP-858 (AssignReplicasToDirs).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.features import directories_enabled
from raftctl.metadata.records import UNASSIGNED
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignment,
)
from raftctl.runtime import Slices
from raftctl.runtime.api import bind_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from broker.log import LogManager
    from broker.replication.partition import IsrProposal, Partition
    from broker.types import TopicPartition
    from raftctl.metadata.image import MetadataImage
    from raftctl.plugins import BrokerContext

REQUEST_TIMEOUT_MS = 10_000
_FIRST_BACKOFF_MS = 50
_ITEMS_MAX = 1_000
"""The number of reports in one request."""

R = TypeVar("R")


class _ReportQueue(ABC, Generic[R]):
    """The reports of one kind that wait, by partition; `run` it as a task."""

    def __init__(self, context: BrokerContext, backoff_max_ms: int) -> None:
        """`backoff_max_ms` bounds the pause after refusals, which doubles from one to the next."""
        self._context = context
        self._log = bind_log(context.runtime, logger="broker.replication")
        self._backoff_max_ms = backoff_max_ms
        # Bounded by the number of partitions: each has one report.
        self._waiting: dict[TopicPartition, R] = {}
        self._arrived = asyncio.Event()

    def invariants(self) -> None:
        """Check that waiting reports wake the task; else they would wait for the next one."""
        invariant(self._arrived.is_set() or not self._waiting, "a report that waits is sent")

    def _put(self, partition: TopicPartition, report: R) -> None:
        self._waiting[partition] = report
        self._arrived.set()

    async def run(self) -> None:
        """Send the waiting reports; until cancelled."""
        backoff_ms = _FIRST_BACKOFF_MS
        while True:
            await self._arrived.wait()
            if await self._send():
                backoff_ms = _FIRST_BACKOFF_MS
            else:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, self._backoff_max_ms)
            # Only here, after the wait: a report that came meanwhile must not lose its wake-up.
            if not self._waiting:
                self._arrived.clear()

    @abstractmethod
    async def _send(self) -> bool:
        """Send one request; return whether nothing of it must be sent again."""


class IsrManager(_ReportQueue["tuple[IsrProposal, Partition]"]):
    """Carries proposed ISR changes to the controller and its results back.

    A partition has one open proposal, by its own state (`PartitionState.proposal`). A proposal that
    is refused for a passing reason is sent again, unless it has been superseded.
    """

    def __init__(self, context: BrokerContext, changed: Callable[[Partition], None]) -> None:
        """`changed` is called after a result has changed a partition's ISR."""
        # Never longer: a leader whose ISR does not shrink acknowledges nothing meanwhile.
        super().__init__(context, _FIRST_BACKOFF_MS)
        self._changed = changed
        self.shrinks = self.expansions = self.refused = 0
        """Proposals that were committed, and those that the controller refused."""

    def submit(self, replica: Partition, proposal: IsrProposal) -> None:
        """Send the proposal with the next request."""
        # A superseded one would propose an ISR that is worked out from an older one.
        invariant(replica.state.proposal is proposal, "the open proposal is sent")
        self._log.debug(
            "isr_change_proposed", partition=replica.partition, members=proposal.members
        )
        self._put(replica.partition, (proposal, replica))

    def invariants(self) -> None:
        """Check that a waiting proposal is that of its partition, and wakes the task."""
        super().invariants()
        for partition, (_, replica) in self._waiting.items():
            invariant(replica.partition == partition, "a proposal is of its partition")

    async def _send(self) -> bool:
        """Send one request; return whether nothing of it must be sent again."""
        batch = [self._waiting.pop(key) for key in list(self._waiting)[:_ITEMS_MAX]]
        # An image may have ended a proposal while it waited: the controller would refuse it.
        batch = [(p, replica) for p, replica in batch if replica.state.proposal is p]
        if not batch:
            return True
        results = await self._ask(batch)
        retried = False
        slices = Slices()
        for (proposal, replica), result in zip(batch, results, strict=True):
            await slices.rest()
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
            self._log.warning("isr_change_unanswered", error=error.code.name)
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
            # Whether the controller applied it is unknown. The same proposal again is safe: it
            # bears the partition epoch, which the controller has moved on if it applied it.
            return state.proposal is proposal
        if result.error is not ErrorCode.NONE:
            self.refused += 1
            again = state.proposal_refused(proposal, result.error)
            error = result.error.name
            self._log_of(replica).info("isr_change_refused", error=error, again=again)
            self._changed(replica)
            return again
        if proposal.is_expansion:
            self.expansions += 1
        else:
            self.shrinks += 1
        state.isr_committed(result.leader_epoch, result.partition_epoch, result.isr)
        self._log_of(replica).info("isr_changed", isr=list(result.isr))
        self._changed(replica)
        return False

    def _log_of(self, replica: Partition) -> FilteringBoundLogger:
        return self._log.bind(partition=str(replica.partition))


class DirectoryAssignments(_ReportQueue[DirectoryAssignment]):
    """Reports which log directory each replica is in, so that the controller knows what fails
    with it.

    Only brokers with several log directories report: where the only one fails, the broker ends.
    """

    def __init__(self, context: BrokerContext, logs: LogManager) -> None:
        super().__init__(context, 5_000)
        self._logs = logs

    def check(self, replica: Partition, image: MetadataImage) -> None:
        """Report the directory of a replica, unless the image has it already."""
        partition = replica.partition
        topic = image.topics.by_id(replica.topic_id)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if known is None or not directories_enabled(image):
            return
        here = self._directory_of(partition)
        if known.directory_of(self._context.config.node_id) == here:
            self.forget(partition)
            return
        report = DirectoryAssignment(replica.topic_id, partition.partition, here)
        # An equal one keeps its place: `_send` knows by identity that it was not superseded.
        if self._waiting.get(partition) != report:
            self._put(partition, report)

    def _directory_of(self, partition: TopicPartition) -> UUID:
        path = self._logs.directory_of(partition)
        has_one = len(self._context.config.log_dirs) == 1
        return UNASSIGNED if has_one or path is None else self._context.directory_ids[path]

    def forget(self, partition: TopicPartition) -> None:
        """Drop the report of a replica that the image has, or that is gone."""
        self._waiting.pop(partition, None)

    async def _send(self) -> bool:
        """Send one request; return whether everything in it was accepted."""
        batch = list(self._waiting.items())[:_ITEMS_MAX]
        errors = await self._ask(tuple(assignment for _, assignment in batch))
        refused: dict[TopicPartition, DirectoryAssignment] = {}
        for (partition, assignment), error in zip(batch, errors, strict=True):
            # The replica has moved on meanwhile: its newer report waits, and this result is old.
            if self._waiting.get(partition) is not assignment:
                continue
            del self._waiting[partition]
            if error is not ErrorCode.NONE:
                refused[partition] = assignment
                self._log_refusal(partition, error)
        # Behind the others, so that they are sent even if these are refused for ever.
        self._waiting.update(refused)
        return not refused

    async def _ask(self, assignments: tuple[DirectoryAssignment, ...]) -> list[ErrorCode]:
        """Return the error of each assignment."""
        context = self._context
        request = AssignReplicasToDirsRequest(
            context.config.node_id, context.broker_epoch(), assignments
        )
        try:
            response = await context.controller.call(request, REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            return [error.code] * len(assignments)
        if not isinstance(response, AssignReplicasToDirsResponse):
            return [ErrorCode.UNKNOWN_SERVER_ERROR] * len(assignments)
        if response.error is not ErrorCode.NONE:
            return [response.error] * len(assignments)
        return list(response.results)

    def _log_refusal(self, partition: TopicPartition, error: ErrorCode) -> None:
        log = self._log
        if error is ErrorCode.KAFKA_STORAGE_ERROR:
            log.warning(
                "replica_lost_its_log_directory",
                partition=str(partition),
                remedy="bring the directory back, or allow an unclean leader election",
            )
        else:
            log.debug("log_directory_untold", partition=str(partition), error=error.name)
