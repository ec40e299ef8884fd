"""Whatever happens to a log, it holds what a list would (model test).

The model is the list of its batches' headers; a crash may shorten it, never below what was flushed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import _cleaner as compaction
from broker.log._cleaner import Cleaning
from broker.log.batches.records import opened
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import keyed_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import DIRECTORY, headers, new_log, reopen

if TYPE_CHECKING:
    from broker.log.batches.record_batch import BatchHeader
    from broker.log.partition_log import PartitionLog

CONFIG = TopicConfig(
    segment_bytes=1_200,
    index_interval_bytes=200,
    cleanup_policy=("compact", "delete"),
    retention_ms=300,
    message_timestamp_after_max_ms=2**60,
)
STEPS = ["append"] * 8 + ["flush", "commit", "truncate", "retain", "delete", "compact", "clean"]
STEPS += ["crash", "restart"]


class Model:
    """A log and what it must hold."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = FakeFiles()
        self.log: PartitionLog = new_log(self.files, CONFIG)
        self.files.sync_directory(DIRECTORY)
        self.log.config = CONFIG
        self.latest: dict[bytes, int] = {}
        self.records: list[tuple[int, bytes]] = []
        """(offset, key) of every record that was appended and not cut."""
        self.start = self.committed = self.durable = self.now_ms = 0
        self.epoch = 0
        self.sequence = 0

    def append(self) -> None:
        pairs: list[tuple[bytes, bytes | None]] = [
            (b"%d" % self.chance.randrange(5), b"v" * self.chance.randrange(60))
            for _ in range(self.chance.randrange(1, 5))
        ]
        codec = self.chance.randrange(5)
        sender = (1, self.epoch, self.sequence)
        batch = keyed_batch(pairs, timestamp=self.now_ms, codec=codec, producer=sender)
        end = self.log.log_end_offset
        self.log.append_as_leader(batch, self.epoch, self.now_ms)
        self.records += [(end + delta, key) for delta, (key, _) in enumerate(pairs)]
        self.sequence += len(pairs)
        self.now_ms += self.chance.randrange(40)

    def flush(self, *, closing: bool = False) -> None:
        plan = self.log.flush_plan(rolled_only=self.chance.random() < 0.5, closing=closing)
        if plan is not None:
            plan.run()
            self.log.flushed(plan)
        # As the checkpoint has it: never beyond what is committed.
        self.durable = min(self.log.recovery_point, self.log.high_watermark)

    def commit(self) -> None:
        self.log.high_watermark = self.committed = self.log.log_end_offset

    def truncate(self) -> None:
        cut = self.chance.randint(self.committed, self.log.log_end_offset)
        cut = next((h.base_offset for h in headers(self.log) if h.last_offset >= cut), cut)
        self.log.truncate_to(max(cut, self.committed))
        self.forget(self.log.log_end_offset)
        # One that has not reached the disk leaves batches of an older leader epoch after a crash:
        # replication tells them apart, a list cannot.
        for file in self.files.files.values():
            file.sync()
        self.files.sync_directory(DIRECTORY)

    def forget(self, end: int) -> None:
        """What is at or above `end` is gone; its producer begins anew in a new leader epoch."""
        self.records = [one for one in self.records if one[0] < end]
        self.epoch += 1
        self.sequence = 0

    def retain(self) -> None:
        self.log.expire(self.now_ms)

    def delete(self) -> None:
        self.log.delete_records(self.chance.randint(self.start, self.committed))

    def compact(self) -> None:
        facts = self.log.segment_facts()
        dirt = compaction.dirt(
            facts, CONFIG, cleaned_to=0, stable_offset=self.committed, now_ms=self.now_ms
        )
        cleaning = Cleaning(self.files, self.log, dirt, now_ms=self.now_ms, buffer_bytes=1 << 20)
        for step in cleaning.steps():
            if step is not None:
                assert self.log.replace_segments(step.replaced, step.segment)

    def clean(self) -> None:
        for finish in self.log.take_retired():
            finish()

    def crash(self) -> None:
        self.flush()
        self.files.crash_by(self.chance)
        self.reopen(clean=False)
        assert self.log.log_end_offset >= self.durable
        self.forget(self.log.log_end_offset)

    def restart(self) -> None:
        self.flush(closing=True)
        self.log.close()
        noted = self.log.producers.get(1), self.known_epochs()
        self.reopen(clean=True)
        assert (self.log.producers.get(1), self.known_epochs()) == noted

    def known_epochs(self) -> list[tuple[int, int]]:
        """Those that wrote something; one that did not may be forgotten."""
        return [one for one in self.log.epochs.entries if one[1] < self.log.log_end_offset]

    def reopen(self, *, clean: bool) -> None:
        start, committed = self.log.log_start_offset, self.committed
        self.log = reopen(self.files, self.durable, clean=clean, config=CONFIG)
        self.log.advance_log_start(min(start, self.log.log_end_offset))
        self.committed = min(committed, self.log.log_end_offset)
        self.log.high_watermark = self.committed

    def check(self) -> None:
        log = self.log
        self.start = log.log_start_offset
        found = [record for header in headers(log) for record in opened(self.batch(header), header)]
        here = [(one.offset, one.key) for one in found if one.offset >= self.start]
        known = [one for one in self.records if one[0] >= self.start]
        # Nothing is made up or out of order, and of each key the last is there.
        assert here == sorted(set(here) & set(known))
        assert {key: offset for offset, key in here} == {key: offset for offset, key in known}
        facts = log.segment_facts()
        assert [one.next_offset for one in facts[:-1]] == [one.base_offset for one in facts[1:]]

    def batch(self, header: BatchHeader) -> bytes:
        offset = min(max(header.base_offset, self.log.log_start_offset), header.last_offset)
        if offset < self.log.log_start_offset:
            segment = next(s for s in reversed(list(self.log._segments)) if s.base_offset <= offset)
            at = segment.find(offset)
            assert at is not None
            return segment.read(at.position, header.size)
        data = self.log.read(offset, max_bytes=1, up_to_offset=2**62, min_one=True)
        return bytes(data[0])


@pytest.mark.req("L2", "L4", "L5", "L6", "L7")
@given(
    seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(STEPS), min_size=10, max_size=100)
)
@settings(max_examples=40, deadline=None)
def test_a_log_holds_what_a_list_would(seed: int, steps: list[str]) -> None:
    model = Model(seed)
    for step in steps:
        getattr(model, step)()
        model.check()
