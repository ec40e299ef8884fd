"""Removal of the files of deleted logs, a few at a time.

A topic may take thousands of logs with it. Each directory is first renamed on the event loop, where
new logs are created, too, so that its name is free for the next log at once. Between a few of them
the loop must run other tasks: without heartbeats the broker would be fenced. A crash leaves
directories that the next start removes, or logs without a replica.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from raftctl.errors import invariant

if TYPE_CHECKING:
    from broker.log.directories._log_directory import LogDirectory
    from broker.log.partition_log import PartitionLog
    from broker.types import TopicPartition
    from raftctl.runtime.api import Runtime

NAME_MAX = 255
"""The most bytes of a directory's name on common file systems."""
AT_ONCE = 20
"""The number of removals in one turn of the loop: some milliseconds."""


class Removals:
    """Logs that are in no directory's `logs` any more, but whose files exist."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[TopicPartition, tuple[LogDirectory, PartitionLog, bool]] = {}
        self._more = asyncio.Event()

    def add(self, directory: LogDirectory, log: PartitionLog, *, aside: bool = False) -> None:
        """Remove the log's files soon, and durably.

        `aside`: only rename them, so that an operator finds them and no broker does.
        """
        served = directory.logs.get(log.partition) is log
        invariant(not served, "no log is removed that is still served")
        self._waiting[log.partition] = (directory, log, aside)
        self._more.set()

    def finish(self, partition: TopicPartition) -> None:
        """Remove the log of a partition now, to make room for another one."""
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            self._remove(*waiting)

    def finish_all(self) -> None:
        """Remove all logs now, because the broker stops."""
        for partition in list(self._waiting):
            self.finish(partition)

    async def run(self) -> None:
        """Remove the waiting logs, a few in each turn of the loop; until cancelled."""
        while True:
            await self._more.wait()
            for partition in list(islice(self._waiting, AT_ONCE)):
                self.finish(partition)
            if not self._waiting:
                self._more.clear()
            await asyncio.sleep(0)

    def _remove(self, home: LogDirectory, log: PartitionLog, aside: bool) -> None:
        if home.offline is not None:
            return
        files = self._runtime.files
        retired = log.take_retired()
        ending = f".{self._runtime.uuid().hex}-{'stray' if aside else 'delete'}"
        # A topic may have a name that leaves no room for more. What comes behind says enough.
        doomed = f"{home.path}/{str(log.partition)[: NAME_MAX - len(ending)]}{ending}"
        try:
            files.rename(log.directory, doomed)
        except OSError as error:
            home.fail(error)
            return

        def remove() -> None:
            for finish in retired:
                finish()
            log.close()
            if not aside:
                files.remove_tree(doomed)
            files.sync_directory(home.path)

        home.submit(remove)
