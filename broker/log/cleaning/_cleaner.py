"""The log cleaner: compacts the logs whose topics ask for it, the dirtiest first (row L6).

`Cleaning` is the compaction of one log, in steps of bounded size for a worker. `LogCleaner` decides
on the event loop which log is next. It puts each finished segment in the place of those that it
replaces, in one turn of the loop, unless the log has changed meanwhile. `broker.log.segments.swap`
makes a crash at any step harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches import records
from broker.log.cleaning import _compaction as compaction
from broker.log.cleaning._compaction import Dirt, OffsetMap, Rules, Transactions
from broker.log.segments import Segment, swap
from raftctl.errors import KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from broker.log.directories import LogDirectory
    from broker.log.partition_log import PartitionLog
    from broker.log.settings import LogSettings
    from raftctl.runtime.api import FileSystem, Runtime

_STEP_BYTES = 256 << 10
"""The bytes of a log that are read before the worker, and the interpreter, is released."""
_COMPACT = "compact"
_DONE = object()


class Rewritten(NamedTuple):
    """A new segment, durable under other names, and those whose place it takes."""

    replaced: tuple[Segment, ...]
    segment: Segment


class Cleaning:
    """The compaction of one log. `steps` runs on a worker, to which the rest belongs meanwhile."""

    def __init__(
        self,
        files: FileSystem,
        log: PartitionLog,
        dirt: Dirt,
        *,
        now_ms: int,
        buffer_bytes: int,
    ) -> None:
        self._files = files
        self._directory = log.directory
        self._first_dirty = dirt.first_dirty_offset
        self.segments = log.complete_segments(dirt.end_offset)
        """The segments that must remain part of the log until they are replaced."""
        self._all = tuple(self.segments)
        self.truncations = log.truncations
        self._latest = OffsetMap(buffer_bytes)
        self._config = log.config
        self._now_ms = now_ms
        self._last_of_producers = log.producers.last_offsets()
        self._markers_of_producers = log.producers.without_batches()
        self._aborted = (
            log.aborted_between(self._all[0].base_offset, dirt.end_offset) if self._all else []
        )
        self.end_offset = dirt.first_dirty_offset
        """The offset up to which the log is compacted after all steps."""

    def steps(self) -> Generator[Rewritten | None, None, None]:
        """Yield each finished segment, and None wherever other work may run."""
        yield from self._learn()
        self.end_offset = self._latest.end_offset
        affected = [s for s in self._all if s.base_offset < self.end_offset and s.size]
        transactions = Transactions(self._aborted)
        sizes = [(s.base_offset, s.next_offset, s.size) for s in affected]
        first = 0
        for count in compaction.grouped(sizes, self._config):
            yield from self._rewrite(affected[first : first + count], transactions)
            first += count

    def _learn(self) -> Iterator[None]:
        transactions = Transactions(
            one for one in self._aborted if one.last_offset >= self._first_dirty
        )
        for segment in self._all:
            if segment.next_offset <= self._first_dirty:
                continue
            done = 0
            for at in segment.batches(segment.position_of(self._first_dirty)):
                if self._latest.is_full:
                    return
                found = []
                if not transactions.is_dropped(at.header) and not at.header.is_control:
                    found = records.opened(segment.read_batch(at), at.header)
                self._latest.learn(at.header, found)
                if at.position - done >= _STEP_BYTES:
                    done = at.position
                    yield None

    def _rewrite(
        self, group: Sequence[Segment], transactions: Transactions
    ) -> Iterator[Rewritten | None]:
        kept_ends = self._last_of_producers | {group[-1].next_offset - 1}
        rules = Rules(self._config, self._now_ms, kept_ends, self._markers_of_producers)
        base, ending = group[0].base_offset, swap.CLEANED
        for path in swap.paths(self._directory, base, ending):
            if self._files.exists(path):
                self._files.remove(path)
        new = Segment(self._files, self._directory, base, self._config, ending=ending)
        done = False
        try:
            changed = yield from self._copy(group, new, rules, transactions)
            spans = new.next_offset == group[-1].next_offset
            invariant(spans, "compaction keeps the last batch of what it rewrites")
            if changed or len(group) > 1:
                new.sync()
                yield Rewritten(tuple(group), new)
                # Who asks for the next step has put the segment in its place.
                done = True
        finally:
            if not done:
                discard(self._files, new)

    def _copy(
        self, group: Sequence[Segment], new: Segment, rules: Rules, transactions: Transactions
    ) -> Generator[None, None, bool]:
        """Copy the records that remain; return whether any batch differs from before."""
        changed = False
        for segment in group:
            done = 0
            for at in segment.batches():
                # A repacked batch gets a correct CRC, so check the old one first.
                batch = segment.read_batch(at)
                kept = compaction.filtered(batch, at.header, self._latest, rules, transactions)
                changed |= kept is None or kept.data is not batch
                if kept is not None:
                    new.append([kept.data], kept.header)
                if at.position - done >= _STEP_BYTES:
                    done = at.position
                    yield None
        new.seal()
        return changed


def discard(files: FileSystem, segment: Segment) -> None:
    """Remove a segment that is not needed after all; blocks."""
    segment.close()
    for path in segment.paths():
        if files.exists(path):
            files.remove(path)


class LogCleaner:
    """Compacts the logs of all directories, one log at a time."""

    def __init__(
        self, runtime: Runtime, directories: Sequence[LogDirectory], settings: LogSettings
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self._settings = settings
        self._worker = runtime.worker("cleaner")
        self._refused: dict[PartitionLog, int] = {}
        """The logs that cannot be compacted, with the offset beyond which another attempt is made.
        """

    async def clean(self) -> None:
        """Compact until no log is dirty enough."""
        while (found := self._dirtiest()) is not None:
            await self._compact(*found)

    async def close(self) -> None:
        """End the worker; wait for the step that is under way, which still reads files."""
        await self._worker.submit(lambda: None)
        self._worker.close()

    def _dirtiest(self) -> tuple[LogDirectory, PartitionLog, Dirt] | None:
        best: tuple[LogDirectory, PartitionLog, Dirt] | None = None
        now_ms = self._runtime.wall_ms()
        for directory in self._directories:
            for partition in sorted(directory.logs) if directory.offline is None else ():
                log = directory.logs[partition]
                if _COMPACT not in log.config.cleanup_policy or partition in directory.leaving:
                    continue
                try:
                    dirt = self._dirt(directory, log, now_ms)
                except KafkaError:
                    continue  # The log has taken its directory offline.
                due = dirt.overdue or dirt.ratio >= log.config.min_cleanable_dirty_ratio
                if dirt.ratio == 0 or not due or self._refused.get(log) == dirt.end_offset:
                    continue
                if best is None or (dirt.overdue, dirt.ratio) > (best[2].overdue, best[2].ratio):
                    best = directory, log, dirt
        return best

    @staticmethod
    def _dirt(directory: LogDirectory, log: PartitionLog, now_ms: int) -> Dirt:
        return compaction.dirt(
            log.segment_facts(),
            log.config,
            cleaned_to=directory.cleaned.get(log.partition, 0),
            stable_offset=log.last_stable_offset,
            now_ms=now_ms,
        )

    async def _compact(self, directory: LogDirectory, log: PartitionLog, dirt: Dirt) -> None:
        buffer_bytes = self._settings.cleaner_dedupe_buffer_bytes
        now_ms, before = self._runtime.wall_ms(), log.size
        cleaning = Cleaning(
            self._runtime.files, log, dirt, now_ms=now_ms, buffer_bytes=buffer_bytes
        )
        cleaning.steps()
        try:
            done = await self._perform(cleaning, directory, log)
        except KafkaError as error:
            self._refused[log] = dirt.end_offset
            self._runtime.log.error(
                "log_not_compacted", partition=str(log.partition), why=str(error)
            )
            return
        except OSError as error:
            # The files of a log that was deleted or cut meanwhile may be gone.
            if self._is_current(cleaning, directory, log):
                directory.fail(error)
            return
        if not done:
            return
        directory.cleaned[log.partition] = cleaning.end_offset
        self._runtime.log.info(
            "log_compacted",
            partition=str(log.partition),
            to_offset=cleaning.end_offset,
            bytes_before=before,
            bytes_after=log.size,
        )

    async def _perform(
        self, cleaning: Cleaning, directory: LogDirectory, log: PartitionLog
    ) -> bool:
        """Run the steps; return False if the log changed so that they are no longer right.

        Compaction reads segments without a lock. A truncation meanwhile makes its decisions wrong:
        a key whose newest record was cut would lose the older one, too.
        """
        steps = cleaning.steps()
        try:
            while (step := await self._worker.submit(lambda: next(steps, _DONE))) is not _DONE:
                # What a step read from files that were closed meanwhile would be anything.
                if not self._is_current(cleaning, directory, log):
                    return False
                if isinstance(step, Rewritten):
                    log.replace_segments(step.replaced, step.segment)
                    cleaning.segments = [s for s in cleaning.segments if s not in step.replaced]
            return True
        finally:
            await self._worker.submit(steps.close)

    @staticmethod
    def _is_current(cleaning: Cleaning, directory: LogDirectory, log: PartitionLog) -> bool:
        is_served = directory.logs.get(log.partition) is log and directory.offline is None
        whole = log.truncations == cleaning.truncations and log.has_segments(cleaning.segments)
        return is_served and whole and log.partition not in directory.leaving
