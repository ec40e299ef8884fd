"""Moves of logs to another of `log.dirs` while they are served (row C14, KIP-113).

A copy in `<topic>-<partition>.<id>-future` grows behind the log, one piece at a time. A piece is
read on the worker of the old directory and written on that of the new one. When little is missing
and the rest is as durable as the log, the copy gets the file `move-complete`. Then, in one turn of
the event loop, the copy takes the last batches, the log's name and its place.

After a crash, `recover_moves` runs before logs are opened. While the log has its name, it is the
log, and a copy under a future name is removed. One of two renames may not have reached its disk:
then both have the name, or only the copy is left. In both cases `move-complete` shows that the copy
is the log.

The log is not compacted meanwhile: a marker could vanish that half of a copied transaction needs.
After a truncation the copy starts again.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from broker.log import checkpoints
from broker.log.directories._log_directory import NAME_MAX
from broker.log.partition_log import create_log
from broker.types import LogFacts
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.integers import LONG_MAX
from raftctl.runtime.api import Buffer, bind_log, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.log.directories._log_directory import LogDirectory, Removals
    from broker.log.partition_log import PartitionLog
    from broker.types import TopicPartition
    from raftctl.runtime.api import FileSystem, Piece, Runtime

T = TypeVar("T")
COMPLETE = "move-complete"
_FUTURE_NAME = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-future")
_PIECE_BYTES = 1 << 20
LAST_BYTES = 256 << 10
"""The most bytes that may be missing for the last step, which copies them in one turn of the loop.
"""
_RETRY_S = 0.05


class FutureLog:
    """One log that is copied from `home` to `target`."""

    def __init__(
        self, home: LogDirectory, target: LogDirectory, log: PartitionLog, copy: PartitionLog
    ) -> None:
        self.partition = log.partition
        self.home = home
        self.target = target
        self.log = log
        self.copy = copy
        """The log that grows in `target`; a worker may be writing to it."""
        self.is_wanted = True
        self.has_begun = False
        self.has_switched = False
        """Whether the copy has taken the log's place."""
        self._truncations = log.truncations
        self._noted = 0, 0
        """The size and end of the copy at the last moment when no worker was writing to it."""

    @property
    def goes_on(self) -> bool:
        """Whether the move is still wanted and both directories are online."""
        return self.is_wanted and self.home.offline is None and self.target.offline is None

    @property
    def is_sound(self) -> bool:
        """Whether the copied bytes are still a part of the log.

        A truncation may have cut some of them, and retention may have passed the copy's end.
        """
        is_part = self.copy.log_end_offset >= self.log.log_start_offset
        return self.log.truncations == self._truncations and is_part

    def invariants(self) -> None:
        """Check that a sound copy is a prefix of its log; only while no worker is writing to it."""
        log, copy = self.log, self.copy
        invariant(self.home is not self.target, "a log moves to another directory")
        if not self.is_sound or self.has_switched:
            return
        invariant(copy.log_end_offset <= log.log_end_offset, "a copy has no more than its log")
        invariant(copy.high_watermark <= log.high_watermark, "a copy commits nothing by itself")
        invariant(
            copy.log_start_offset <= log.log_start_offset, "a copy begins where its log began"
        )

    def begin(self) -> None:
        """Start copying from the log's start, also again after a truncation; blocks."""
        self._truncations = self.log.truncations
        self.copy.restart_at(self.log.log_start_offset)
        for finish in self.copy.take_retired():
            finish()
        self._noted = 0, self.log.log_start_offset

    @property
    def missing_bytes(self) -> int:
        """The bytes that are still to be copied; exact if less than LAST_BYTES.

        Of more it may be those of one segment only, which is enough to know that it is not little.
        """
        behind = self.copy.log_end_offset, self.log.log_end_offset
        return 0 if behind[0] == behind[1] else self.log.bytes_between(*behind)

    def note_bounds(self) -> None:
        """Take the log's high watermark over to the copy, and note the copy's own bounds."""
        log, copy = self.log, self.copy
        copy.high_watermark = min(log.high_watermark, copy.log_end_offset)
        copy.producers.prune_undo(copy.high_watermark)
        self._noted = copy.size, copy.log_end_offset
        self.invariants()

    def take_rest(self) -> bool:
        """Copy what is missing if it is little; return whether nothing is missing now.

        On the event loop, so that no batch comes between the last one copied and the switch. More
        than LAST_BYTES would stall it.
        """
        log, copy = self.log, self.copy
        end, left = log.log_end_offset, LAST_BYTES
        while copy.log_end_offset < end and left > 0:
            start = copy.log_end_offset
            data = log.read(start, max_bytes=left, up_to_offset=end, min_one=True)
            left -= copy.append_as_follower(b"".join(data))
        self.note_bounds()
        return copy.log_end_offset == end

    def hand_over(self) -> None:
        """Give the copy the state that batches do not contain, just before it becomes the log."""
        log, copy = self.log, self.copy
        same_end = copy.log_end_offset == log.log_end_offset
        invariant(same_end, "a copy that takes the log's place lacks no batch")
        copy.config, copy.topic_id = log.config, log.topic_id
        copy.epochs, copy.producers = log.epochs, log.producers
        copy.high_watermark = log.high_watermark

    def facts(self) -> LogFacts:
        """Return the copy as DescribeLogDirs lists it: its size in bytes, and its lag in records.

        As of the last moment when no worker was writing to it.
        """
        size, end = self._noted
        return LogFacts(self.partition, size, max(self.log.log_end_offset - end, 0), is_future=True)


class FutureLogs:
    """The moves of a broker, one at a time, in the order of the requests."""

    def __init__(
        self,
        runtime: Runtime,
        removals: Removals,
        take: Callable[[FutureLog], None],
        copied: Callable[[int], bool],
    ) -> None:
        """`take` puts the copy in its log's place everywhere, and must not fail; `copied` counts
        bytes and returns whether the throttle asks for a pause.
        """
        self._take = take
        self._copied = copied
        self._runtime = runtime
        self._files = runtime.files
        self._removals = removals
        # Bounded by the number of partitions.
        self._futures: dict[TopicPartition, FutureLog] = {}
        self._more = asyncio.Event()

    def request(self, home: LogDirectory, target: LogDirectory, log: PartitionLog) -> None:
        """Move a log, instead of any move that is under way. To its own directory: only end that.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the target refuses, INVALID_TOPIC_EXCEPTION if the
        log's name leaves no room for that of a copy.
        """
        under_way = self._futures.get(log.partition)
        if under_way is not None and under_way.is_wanted and under_way.target is target:
            return
        self.forget(log.partition)
        if home is target:
            return
        self._futures[log.partition] = FutureLog(home, target, log, self._made(target, log))
        self._more.set()

    def _made(self, target: LogDirectory, log: PartitionLog) -> PartitionLog:
        """Create the empty copy.

        A start after a crash knows by its name that it is not a log of the broker, even complete.
        """
        name = f"{log.partition}.{self._runtime.uuid().hex}-future"
        if len(name) > NAME_MAX:
            text = f"{log.partition}: its name is too long for a copy's to be made of it"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        path = f"{target.path}/{name}"
        # The copy belongs to workers, which nobody may ask to flush.
        config = replace(log.config, flush_messages=LONG_MAX)
        try:
            return create_log(self._files, path, log.partition, config)
        except OSError as error:
            target.fail(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}: {error}") from error

    def forget(self, partition: TopicPartition) -> None:
        """End the move of a log that is deleted, or that stays where it is."""
        future = self._futures.pop(partition, None)
        if future is not None:
            future.is_wanted = False
            # What has begun ends by itself, when no worker is at the copy any more.
            if not future.has_begun:
                self._discard(future)

    def facts(self, directory: LogDirectory) -> list[LogFacts]:
        """Return the copies that grow in a directory."""
        return [future.facts() for future in self._futures.values() if future.target is directory]

    async def run(self) -> None:
        """Perform the requested moves; until cancelled."""
        while True:
            await self._more.wait()
            while self._futures:
                await self._perform(next(iter(self._futures.values())))
            self._more.clear()

    async def _perform(self, future: FutureLog) -> None:
        log, partition = bind_log(self._runtime, logger="broker.log"), future.partition
        future.home.leaving[partition] = None
        future.has_begun = True
        try:
            await self._copy_and_switch(future)
            if future.has_switched:
                log.info("log_moved", partition=str(partition), directory=future.target.path)
        except (OSError, KafkaError) as error:
            log.error("log_not_moved", partition=str(partition), why=str(error))
        finally:
            future.home.leaving.pop(partition, None)
            if self._futures.get(partition) is future:
                del self._futures[partition]
            if not future.has_switched:
                self._discard(future)

    async def _copy_and_switch(self, future: FutureLog) -> None:
        """Copy until the copy can take the log's place, and put it there."""
        if future.log.topic_id is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log has no topic id yet")
        stale = f"{future.log.directory}/{COMPLETE}"
        await self._on(future, future.home, partial(_remove, self._files, stale))
        topic_id = {future.copy.directory: future.log.topic_id}
        await self._on(
            future, future.target, partial(checkpoints.write_topic_ids, self._files, topic_id)
        )
        await self._on(
            future, future.target, partial(self._files.sync_directory, future.target.path)
        )
        await self._on(future, future.target, future.begin)
        while future.goes_on and not future.has_switched:
            if not future.is_sound:
                await self._on(future, future.target, future.begin)
            elif future.missing_bytes > LAST_BYTES:
                await self._copy(future)
            else:
                await self._make_durable(future)
                if not self._switch(future):
                    await asyncio.sleep(_RETRY_S)
        if future.has_switched:
            await self._forget_old(future)

    async def _copy(self, future: FutureLog) -> None:
        log, offset = future.log, future.copy.log_end_offset
        warm = log.segment_at(offset).warm(offset, _PIECE_BYTES)
        if warm is not None:
            await self._on(future, future.home, warm)
            if not (future.goes_on and future.is_sound):
                return
        end = log.log_end_offset
        pieces = log.to_send(offset, max_bytes=_PIECE_BYTES, up_to_offset=end, min_one=True)
        try:
            data = await future.home.worker.submit(partial(_read, pieces))
        except OSError as error:
            # What was cut off, or of a log that was deleted, cannot be had any more.
            if future.goes_on and future.is_sound:
                future.home.fail(error)
            return
        if not (future.goes_on and future.is_sound):
            return
        await self._on(future, future.target, partial(future.copy.append_as_follower, data))
        future.note_bounds()
        size = len(data)
        while self._copied(size) and future.goes_on:
            size = 0
            await asyncio.sleep(_RETRY_S)

    async def _make_durable(self, future: FutureLog) -> None:
        """Make all that was copied durable, so that it counts as much as the log's own batches."""
        future.take_rest()
        copy = future.copy
        plan = copy.flush_plan(rolled_only=False)
        if plan is not None:
            await self._on(future, future.target, plan.run)
            copy.flushed(plan)
        note = f"{copy.directory}/{COMPLETE}"
        if not self._files.exists(note):
            await self._on(future, future.target, partial(replace_file, self._files, note, b""))

    def _switch(self, future: FutureLog) -> bool:
        """Put the copy in the log's place, if this turn of the loop allows it; return whether it
        did.

        It does not while the log has durable batches that the copy has only in the page cache, nor
        while a flush of the log is under way: an acknowledgement could rest on it.
        """
        log, copy, home, target = future.log, future.copy, future.home, future.target
        if not (future.goes_on and future.is_sound and future.take_rest()):
            return False
        if log.recovery_point > copy.recovery_point or home.flusher.is_flushing(log):
            return False
        path = f"{target.path}/{future.partition}"
        self._removals.finish(future.partition)
        try:
            self._files.rename(copy.directory, path)
        except OSError as error:
            target.fail(error)
            return False
        future.has_switched = True
        copy.moved_to(path)
        future.hand_over()
        self._take(future)
        with suppress(KafkaError):
            # The log has taken the directory offline already.
            copy.advance_log_start(log.log_start_offset)
        target.submit(partial(self._files.sync_directory, target.path), copy)
        self._removals.add(home, log)
        self._removals.finish(future.partition)
        return True

    async def _forget_old(self, future: FutureLog) -> None:
        """Remove the marker file once no crash can bring the old log back."""
        await future.target.write_checkpoints()
        await future.home.worker.submit(lambda: None)
        if future.home.offline is None:
            note = f"{future.target.path}/{future.partition}/{COMPLETE}"
            future.target.submit(partial(_remove, self._files, note), future.copy)

    def _discard(self, future: FutureLog) -> None:
        """Remove the copy; files that cannot be removed now are removed at the next start."""
        copy = future.copy

        def remove() -> None:
            copy.close()
            for finish in copy.take_retired():
                finish()
            with suppress(OSError):
                self._files.remove_tree(copy.directory)

        future.target.submit(remove)

    async def _on(self, future: FutureLog, directory: LogDirectory, call: Callable[[], T]) -> T:
        """Run a call on the worker of a directory; a disk that refuses takes the directory offline.

        Not so for a move that ended meanwhile, because its files may be gone.
        """
        try:
            return await directory.worker.submit(call)
        except (OSError, KafkaError) as error:
            refused = isinstance(error, OSError) or error.code is ErrorCode.KAFKA_STORAGE_ERROR
            if refused and future.goes_on:
                directory.fail(error)
            raise


def _read(pieces: Sequence[Piece]) -> Buffer:
    return b"".join(
        piece if isinstance(piece, Buffer) else piece.read(0, len(piece)) for piece in pieces
    )


def _remove(files: FileSystem, path: str) -> None:
    if files.exists(path):
        files.remove(path)
        files.sync_directory(path.rpartition("/")[0])


def recover_moves(files: FileSystem, paths: Sequence[str]) -> None:
    """Finish or undo the moves between these directories that a crash interrupted; blocks."""
    homes: dict[str, list[str]] = {}
    for path in paths:
        for name in files.names(path) if files.is_directory(path) else ():
            homes.setdefault(name, []).append(path)
    for name, found in homes.items():
        copy = _FUTURE_NAME.fullmatch(name)
        if copy is not None:
            _recover_copy(files, f"{found[0]}/{name}", copy[1], has_log=copy[1] in homes)
        elif len(found) > 1:
            _recover_twins(files, [f"{path}/{name}" for path in found])


def _recover_copy(files: FileSystem, copy: str, name: str, *, has_log: bool) -> None:
    directory = copy.rpartition("/")[0]
    if files.exists(f"{copy}/{COMPLETE}") and not has_log:
        files.rename(copy, f"{directory}/{name}")
    else:
        files.remove_tree(copy)
    files.sync_directory(directory)


def _recover_twins(files: FileSystem, twins: Sequence[str]) -> None:
    complete = [one for one in twins if files.exists(f"{one}/{COMPLETE}")]
    if len(complete) == 1:
        for path in twins:
            if path not in complete:
                files.remove_tree(path)
                files.sync_directory(path.rpartition("/")[0])
