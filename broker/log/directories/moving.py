"""Moves logs to another of `log.dirs` while they are served (row C14, KIP-113).

A copy in `<topic>-<partition>.<id>-future` grows behind the log, a piece at a time: read on the
worker of the directory that it leaves, written on that of the directory where it goes. When what is
missing is little and the rest is as durable as the log, the copy bears the file `move-complete`.
Then, in one turn of the event loop, it gets the last batches and the log's name, all use it instead
of the log, and the log is removed.

What a crash leaves (`settle`, before logs are opened): as long as the log has its name, it is the
log, and a copy under the name of one goes. Where both have it, or only the copy is left, because
one of two renames did not reach its disk, that file tells that the copy is the log.

Nothing is compacted meanwhile: a marker could be gone that the copied half of a transaction needs.
After a truncation the copy begins anew.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from broker.log import checkpoints
from broker.log.directories._removals import NAME_MAX
from broker.log.partition_log import create_log
from broker.types import LogFacts
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.configs.topic import LONG_MAX
from raftctl.runtime.api import Buffer, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.log.directories._log_directory import LogDirectory
    from broker.log.directories._removals import Removals
    from broker.log.partition_log import PartitionLog
    from broker.types import TopicPartition
    from raftctl.runtime.api import FileSystem, Piece, Runtime

T = TypeVar("T")
COMPLETE = "move-complete"
_FUTURE_NAME = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-future")
_PIECE_BYTES = 1 << 20
LAST_BYTES = 256 << 10
"""So much may be missing that is copied in one turn of the loop."""
_RETRY_S = 0.05


class Move:
    """One log on its way from `home` to `target`."""

    def __init__(
        self, home: LogDirectory, target: LogDirectory, log: PartitionLog, future: PartitionLog
    ) -> None:
        self.partition = log.partition
        self.home = home
        self.target = target
        self.log = log
        self.future = future
        """The copy."""
        self.is_wanted = True
        self.has_begun = False
        self.has_switched = False
        """Whether the copy is the log."""
        self._truncations = log.truncations
        self._noted = 0, 0
        """Size and end of the copy when no worker was at it."""

    @property
    def goes_on(self) -> bool:
        """Whether somebody wants it and both directories are in order."""
        return self.is_wanted and self.home.offline is None and self.target.offline is None

    @property
    def is_sound(self) -> bool:
        """Whether what was copied is still a part of the log."""
        is_part = self.future.log_end_offset >= self.log.log_start_offset
        return self.log.truncations == self._truncations and is_part

    def invariants(self) -> None:
        """Check that a sound copy is a prefix of its log; for when no worker is at the copy."""
        log, copy = self.log, self.future
        invariant(self.home is not self.target, "a log moves to another directory")
        if not self.is_sound or self.has_switched:
            return
        invariant(copy.log_end_offset <= log.log_end_offset, "a copy has no more than its log")
        invariant(copy.high_watermark <= log.high_watermark, "a copy commits nothing by itself")
        invariant(
            copy.log_start_offset <= log.log_start_offset, "a copy begins where its log began"
        )

    def begin(self) -> None:
        """Copies from the start of the log; blocks."""
        self._truncations = self.log.truncations
        self.future.restart_at(self.log.log_start_offset)
        for finish in self.future.take_retired():
            finish()
        self._noted = 0, self.log.log_start_offset

    @property
    def missing_bytes(self) -> int:
        """How much there is to copy, at least if it is less than LAST_BYTES."""
        behind = self.future.log_end_offset, self.log.log_end_offset
        return 0 if behind[0] == behind[1] else self.log.bytes_between(*behind)

    def note_bounds(self) -> None:
        """The copy knows what is committed, and this is known of the copy."""
        log, future = self.log, self.future
        future.high_watermark = min(log.high_watermark, future.log_end_offset)
        future.producers.settle(future.high_watermark)
        self._noted = future.size, future.log_end_offset
        self.invariants()

    def take_rest(self) -> bool:
        """Copies what is missing if it is little; returns whether nothing is missing now."""
        log, future = self.log, self.future
        end, left = log.log_end_offset, LAST_BYTES
        while future.log_end_offset < end and left > 0:
            start = future.log_end_offset
            data = log.read(start, max_bytes=left, up_to_offset=end, min_one=True)
            left -= future.append_as_follower(b"".join(data))
        self.note_bounds()
        return future.log_end_offset == end

    def hand_over(self) -> None:
        """The copy is all that the log is; what batches do not tell is taken from it."""
        log, future = self.log, self.future
        future.config, future.topic_id = log.config, log.topic_id
        future.epochs, future.producers = log.epochs, log.producers
        future.high_watermark = log.high_watermark

    def facts(self) -> LogFacts:
        """As DescribeLogDirs tells it."""
        size, end = self._noted
        return LogFacts(self.partition, size, max(self.log.log_end_offset - end, 0), is_future=True)


class LogMoves:
    """The moves of a broker, one at a time in the order in which they were asked for."""

    def __init__(self, runtime: Runtime, removals: Removals) -> None:
        self._runtime = runtime
        self._files = runtime.files
        self._removals = removals
        # Bounded by the number of partitions.
        self._moves: dict[TopicPartition, Move] = {}
        self._more = asyncio.Event()
        self.take: Callable[[Move], None] = lambda _move: None
        """Has everybody use the copy from now on; must not fail."""
        self.copied: Callable[[int], bool] = lambda _bytes: False
        """Counts bytes; says whether that was too many for now."""

    def request(self, home: LogDirectory, target: LogDirectory, log: PartitionLog) -> None:
        """Moves a log, instead of where it may be going. To where it is: ends what is under way.

        KafkaError(KAFKA_STORAGE_ERROR) if the target refuses, INVALID_TOPIC_EXCEPTION if no copy
        can have a name.
        """
        under_way = self._moves.get(log.partition)
        if under_way is not None and under_way.is_wanted and under_way.target is target:
            return
        self.forget(log.partition)
        if home is target:
            return
        self._moves[log.partition] = Move(home, target, log, self._made(target, log))
        self._more.set()

    def _made(self, target: LogDirectory, log: PartitionLog) -> PartitionLog:
        """An empty copy."""
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
        """The log goes, or stays where it is."""
        move = self._moves.pop(partition, None)
        if move is not None:
            move.is_wanted = False
            # What has begun ends by itself, when no worker is at the copy any more.
            if not move.has_begun:
                self._discard(move)

    def facts(self, directory: LogDirectory) -> list[LogFacts]:
        """The copies that grow in a directory."""
        return [move.facts() for move in self._moves.values() if move.target is directory]

    async def run(self) -> None:
        """Does what was asked for; until cancelled."""
        while True:
            await self._more.wait()
            while self._moves:
                await self._perform(next(iter(self._moves.values())))
            self._more.clear()

    async def _perform(self, move: Move) -> None:
        log, partition = self._runtime.log, move.partition
        move.home.leaving[partition] = None
        move.has_begun = True
        try:
            await self._move(move)
            if move.has_switched:
                log.info("log_moved", partition=str(partition), directory=move.target.path)
        except (OSError, KafkaError) as error:
            log.error("log_not_moved", partition=str(partition), why=str(error))
        finally:
            move.home.leaving.pop(partition, None)
            if self._moves.get(partition) is move:
                del self._moves[partition]
            if not move.has_switched:
                self._discard(move)

    async def _move(self, move: Move) -> None:
        """Copies until the copy can take the log's place, and puts it there."""
        if move.log.topic_id is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log has no topic id yet")
        stale = f"{move.log.directory}/{COMPLETE}"
        await self._on(move, move.home, partial(_remove, self._files, stale))
        topic_id = {move.future.directory: move.log.topic_id}
        await self._on(
            move, move.target, partial(checkpoints.write_topic_ids, self._files, topic_id)
        )
        await self._on(move, move.target, partial(self._files.sync_directory, move.target.path))
        await self._on(move, move.target, move.begin)
        while move.goes_on and not move.has_switched:
            if not move.is_sound:
                await self._on(move, move.target, move.begin)
            elif move.missing_bytes > LAST_BYTES:
                await self._copy(move)
            else:
                await self._make_durable(move)
                if not self._switch(move):
                    await asyncio.sleep(_RETRY_S)
        if move.has_switched:
            await self._settle(move)

    async def _copy(self, move: Move) -> None:
        log, offset = move.log, move.future.log_end_offset
        warm = log.segment_at(offset).warm(offset, _PIECE_BYTES)
        if warm is not None:
            await self._on(move, move.home, warm)
            if not (move.goes_on and move.is_sound):
                return
        end = log.log_end_offset
        pieces = log.to_send(offset, max_bytes=_PIECE_BYTES, up_to_offset=end, min_one=True)
        try:
            data = await move.home.worker.submit(partial(_read, pieces))
        except OSError as error:
            # What was cut off, or of a log that was deleted, cannot be had any more.
            if move.goes_on and move.is_sound:
                move.home.fail(error)
            return
        if not (move.goes_on and move.is_sound):
            return
        await self._on(move, move.target, partial(move.future.append_as_follower, data))
        move.note_bounds()
        size = len(data)
        while self.copied(size) and move.goes_on:
            size = 0
            await asyncio.sleep(_RETRY_S)

    async def _make_durable(self, move: Move) -> None:
        """All that was copied, so that it counts as much as what is in the log."""
        move.take_rest()
        future = move.future
        plan = future.flush_plan(rolled_only=False)
        if plan is not None:
            await self._on(move, move.target, plan.run)
            future.flushed(plan)
        note = f"{future.directory}/{COMPLETE}"
        if not self._files.exists(note):
            await self._on(move, move.target, partial(replace_file, self._files, note, b""))

    def _switch(self, move: Move) -> bool:
        """Puts the copy in the log's place, if that is possible in this turn of the loop."""
        log, future, home, target = move.log, move.future, move.home, move.target
        if not (move.goes_on and move.is_sound and move.take_rest()):
            return False
        if log.recovery_point > future.recovery_point or home.flusher.is_flushing(log):
            return False
        path = f"{target.path}/{move.partition}"
        self._removals.finish(move.partition)
        try:
            self._files.rename(future.directory, path)
        except OSError as error:
            target.fail(error)
            return False
        move.has_switched = True
        future.moved_to(path)
        move.hand_over()
        self.take(move)
        with suppress(KafkaError):
            # The directory has been told.
            future.advance_log_start(log.log_start_offset)
        target.submit(partial(self._files.sync_directory, target.path), future)
        self._removals.add(home, log)
        self._removals.finish(move.partition)
        return True

    async def _settle(self, move: Move) -> None:
        """When no crash can bring the old log back, nothing need tell it from the new one."""
        await move.target.write_checkpoints()
        await move.home.worker.submit(lambda: None)
        if move.home.offline is None:
            note = f"{move.target.path}/{move.partition}/{COMPLETE}"
            move.target.submit(partial(_remove, self._files, note), move.future)

    def _discard(self, move: Move) -> None:
        """Removes the copy; what cannot be removed now goes when the broker starts again."""
        future = move.future

        def remove() -> None:
            future.close()
            for finish in future.take_retired():
                finish()
            with suppress(OSError):
                self._files.remove_tree(future.directory)

        move.target.submit(remove)

    async def _on(self, move: Move, directory: LogDirectory, call: Callable[[], T]) -> T:
        """Runs a call on the worker; a disk that refuses takes the directory offline.

        Not for a move that has ended meanwhile: the files may be gone.
        """
        try:
            return await directory.worker.submit(call)
        except (OSError, KafkaError) as error:
            refused = isinstance(error, OSError) or error.code is ErrorCode.KAFKA_STORAGE_ERROR
            if refused and move.goes_on:
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


def settle(files: FileSystem, paths: Sequence[str]) -> None:
    """Ends the moves between these directories that a crash interrupted; blocks."""
    homes: dict[str, list[str]] = {}
    for path in paths:
        for name in files.names(path) if files.is_directory(path) else ():
            homes.setdefault(name, []).append(path)
    for name, found in homes.items():
        future = _FUTURE_NAME.fullmatch(name)
        if future is not None:
            _settle_copy(files, f"{found[0]}/{name}", future[1], has_log=future[1] in homes)
        elif len(found) > 1:
            _settle_twins(files, [f"{path}/{name}" for path in found])


def _settle_copy(files: FileSystem, copy: str, name: str, *, has_log: bool) -> None:
    directory = copy.rpartition("/")[0]
    if files.exists(f"{copy}/{COMPLETE}") and not has_log:
        files.rename(copy, f"{directory}/{name}")
    else:
        files.remove_tree(copy)
    files.sync_directory(directory)


def _settle_twins(files: FileSystem, twins: Sequence[str]) -> None:
    complete = [one for one in twins if files.exists(f"{one}/{COMPLETE}")]
    if len(complete) == 1:
        for path in twins:
            if path not in complete:
                files.remove_tree(path)
                files.sync_directory(path.rpartition("/")[0])
