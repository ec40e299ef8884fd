"""Reports to the controller which log directory each replica is in, so that it knows what fails
with it.

Only brokers with several log directories report: where the only one fails, the broker ends.
Assignments of many partitions travel in one request, and one request is in flight at a time.
Refused ones are sent again, less and less often, until they are accepted or superseded.

Source: KIP-858 (AssignReplicasToDirs).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import directories_enabled
from raftctl.metadata.records import UNASSIGNED
from raftctl.metadata.requests.cluster import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignment,
)

if TYPE_CHECKING:
    from uuid import UUID

    from broker.log import LogManager
    from broker.replication.partition import Partition
    from broker.types import TopicPartition
    from raftctl.metadata.image import MetadataImage
    from raftctl.plugins import BrokerContext

REQUEST_TIMEOUT_MS = 10_000
_FIRST_BACKOFF_MS = 50
_BACKOFF_MAX_MS = 5_000
_ITEMS_MAX = 1_000


class DirectoryAssignments:
    """The assignments that are still to be reported; `run` it as a task."""

    def __init__(self, context: BrokerContext, logs: LogManager) -> None:
        self._context = context
        self._logs = logs
        # Bounded by the number of partitions: each is in one directory.
        self._waiting: dict[TopicPartition, DirectoryAssignment] = {}
        self._arrived = asyncio.Event()

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
        waiting = self._waiting.get(partition)
        if waiting is None or waiting.directory_id != here or waiting.topic_id != replica.topic_id:
            self._waiting[partition] = DirectoryAssignment(
                replica.topic_id, partition.partition, here
            )
            self._arrived.set()

    def _directory_of(self, partition: TopicPartition) -> UUID:
        path = self._logs.directory_of(partition)
        has_one = len(self._context.config.log_dirs) == 1
        return UNASSIGNED if has_one or path is None else self._context.directory_ids[path]

    def forget(self, partition: TopicPartition) -> None:
        """Drop the report of a replica that the image has, or that is gone."""
        self._waiting.pop(partition, None)

    async def run(self) -> None:
        """Send the waiting reports; until cancelled."""
        backoff_ms = _FIRST_BACKOFF_MS
        while True:
            await self._arrived.wait()
            if await self._send():
                backoff_ms = _FIRST_BACKOFF_MS
            else:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, _BACKOFF_MAX_MS)
            if not self._waiting:
                self._arrived.clear()

    async def _send(self) -> bool:
        """Send one request; return whether everything in it was accepted."""
        batch = list(self._waiting.items())[:_ITEMS_MAX]
        errors = await self._ask(tuple(assignment for _, assignment in batch))
        refused: dict[TopicPartition, DirectoryAssignment] = {}
        for (partition, assignment), error in zip(batch, errors, strict=True):
            if self._waiting.get(partition) is not assignment:
                continue
            del self._waiting[partition]
            if error is not ErrorCode.NONE:
                refused[partition] = assignment
                self._complain(partition, error)
        # Behind the others, so that they are heard even if these never are.
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

    def _complain(self, partition: TopicPartition, error: ErrorCode) -> None:
        log = self._context.runtime.log
        if error is ErrorCode.KAFKA_STORAGE_ERROR:
            log.warning(
                "replica_lost_its_log_directory",
                partition=str(partition),
                remedy="bring the directory back, or allow an unclean leader election",
            )
        else:
            log.debug("log_directory_untold", partition=str(partition), error=error.name)
