"""A core does what takes long a little at a time, and nothing is lost in between (row G3)."""

from __future__ import annotations

import pytest

from broker.coordinator import STEP_ITEMS
from broker.coordinator.core import Now
from broker.groups import CommittedOffset
from broker.groups import _core as group_core
from broker.groups._records import OffsetKey, offset_record
from broker.groups.requests import DeleteGroup, FetchOffsets, ForgetTopics
from broker.types import TopicPartition
from raftctl.errors import ErrorCode
from tests.unit.broker.groups.group_harness import Bench

pytestmark = pytest.mark.req("G3")
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
COUNT = 2 * STEP_ITEMS + 10
CHECK_MS = DAY_MS


class Steps(Bench):
    """Counts what a turn of the core looks at and writes."""

    def turn(self) -> int:
        """Does what is due next; how many records that wrote."""
        due, before = self.core.deadline_ms(), len(self.log)
        assert due is not None
        self.ms = max(self.ms, due)
        self._take(self.core.tick(self.now))
        return len(self.log) - before

    def fill(self, count: int, topic: str = "t", group: str = "g") -> None:
        """Offsets of so many partitions, committed now."""
        committed = CommittedOffset(5, -1, "", self.now.wall_ms)
        keys = [OffsetKey(group, topic, number) for number in range(count)]
        for start in range(0, count, STEP_ITEMS):
            self.append([offset_record(one, committed) for one in keys[start : start + STEP_ITEMS]])

    def offsets(self, group: str = "g") -> set[TopicPartition]:
        return set(self.ask(FetchOffsets(group, None)))

    def ids(self) -> list[str]:
        return [one["group_id"] for one in self.listed()]


@pytest.fixture
def bench() -> Steps:
    return Steps(offsets_retention_check_interval_ms=str(CHECK_MS))


def test_old_offsets_go_in_slices(bench: Steps) -> None:
    bench.fill(COUNT)
    bench.sleep(RETENTION_MS - 1)
    assert len(bench.offsets()) == COUNT
    written = []
    while bench.ids():
        written.append(bench.turn())
    assert sum(written) == COUNT + 1
    assert max(written) == STEP_ITEMS
    bench.fail_over()
    assert bench.offsets() == set()


def test_many_groups_are_looked_at_in_several_turns(bench: Steps) -> None:
    """With nothing to write: each turn ends after so many, and requests are handled in between."""
    for number in range(30):
        bench.fill(STEP_ITEMS // 10, group=f"g{number}")
    bench.sleep(CHECK_MS - 1)
    began = bench.ms
    turns = 0
    while (due := bench.core.deadline_ms()) is not None and due < began + CHECK_MS:
        assert bench.turn() == 0
        turns += 1
    assert turns >= 3
    assert len(bench.ids()) == 30


def test_what_is_committed_meanwhile_stays(bench: Steps) -> None:
    bench.fill(COUNT)
    bench.sleep(RETENTION_MS - 1)
    newest = TopicPartition("t", COUNT - 1)
    while len(bench.offsets()) == COUNT:
        bench.turn()
    bench.append([offset_record(OffsetKey("g", *newest), CommittedOffset(6, -1, "", bench.now[1]))])
    bench.sleep(1_000)
    assert bench.offsets() == {newest}
    assert bench.ids() == ["g"]


def test_a_large_group_is_deleted_in_slices(bench: Steps) -> None:
    """Meanwhile nothing is written of it, and others are heard."""
    bench.fill(COUNT)
    bench.fill(1, group="other")
    request_id = bench.begin(DeleteGroup("g"))
    assert request_id not in bench.told
    assert len(bench.offsets()) == COUNT - STEP_ITEMS
    assert bench.commit("", -1, 7) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    for request in (DeleteGroup("g"), bench.join(), bench.sync("m")):
        assert bench.ask(request) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.commit("", -1, 7, group="other") == ErrorCode.NONE
    written = []
    while request_id not in bench.told:
        written.append(bench.turn())
    assert written == [STEP_ITEMS, COUNT - 2 * STEP_ITEMS + 1]
    assert bench.told[request_id] is None
    assert bench.ids() == ["other"]
    assert bench.ask(DeleteGroup("g")) == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.commit("", -1, 8) == ErrorCode.NONE
    bench.fail_over()
    assert bench.committed() == 8


def test_a_deletion_that_is_refused_half_way_may_be_asked_for_again(bench: Steps) -> None:
    bench.fill(COUNT)
    request_id = bench.begin(DeleteGroup("g"))
    bench.refuse = ErrorCode.NOT_COORDINATOR
    bench.turn()
    assert bench.told[request_id] == ErrorCode.NOT_COORDINATOR
    bench.refuse = None
    assert len(bench.offsets()) == COUNT - STEP_ITEMS
    request_id = bench.begin(DeleteGroup("g"))
    bench.sleep(1_000)
    assert bench.told[request_id] is None
    assert bench.ids() == []


def test_chores_take_turns(bench: Steps) -> None:
    """A group is deleted while all others are looked at."""
    bench.fill(4 * STEP_ITEMS, group="other")
    bench.fill(COUNT)
    bench.sleep(CHECK_MS)
    request_id = bench.begin(DeleteGroup("g"))
    while request_id not in bench.told:
        bench.turn()
    # It did not wait until everything else had been looked at.
    assert bench.core._steps._under_way


def test_long_ids_make_smaller_batches(bench: Steps) -> None:
    """All tombstones of a group's offsets would not be taken as one batch."""
    group = "g" * 2_000
    bench.records_max = 300
    bench.fill(300, group=group)
    bench.fill(300, group=group, topic="u")
    assert bench.ask(DeleteGroup(group)) is None
    assert bench.ids() == []


def test_what_is_refused_goes_the_next_time(bench: Steps) -> None:
    bench.fill(3)
    bench.fill(3, group="h")
    bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.sleep(RETENTION_MS + 1_000)
    assert bench.ids() == ["g", "h"]
    bench.ask(ForgetTopics(frozenset({"t"})))
    bench.refuse = None
    bench.sleep(CHECK_MS)
    assert bench.ids() == []


def test_offsets_of_topics_that_are_there_again_stay(bench: Steps) -> None:
    """Topics are deleted, and deleted again while their offsets still go."""
    bench.fill(COUNT)
    bench.fill(5, topic="u")
    bench.ask(ForgetTopics(frozenset({"t"})))
    assert len(bench.offsets()) == 5 + COUNT - STEP_ITEMS
    bench.ask(ForgetTopics(frozenset({"u"})))
    bench.sleep(1)
    bench.fill(1, topic="u")
    bench.append(
        [offset_record(OffsetKey("g", "t", COUNT), CommittedOffset(6, -1, "", bench.now[1]))]
    )
    bench.sleep(1_000)
    assert bench.offsets() == {TopicPartition("u", 0), TopicPartition("t", COUNT)}


def test_members_of_many_groups_are_waited_for_after_a_move(
    bench: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_core, "_WATCHED_AT_ONCE", 2)
    first, second = bench.two_members()
    for number in range(5):
        bench.ask(bench.join(group_id=f"other-{number}"))
    bench.core = bench.new_core()
    bench.core.loaded(Now(bench.ms, 0))
    bench.sleep(9_000)
    assert bench.heartbeat(first, 2) == ErrorCode.NONE
    bench.sleep(9_000)
    assert bench.heartbeat(second, 2) == ErrorCode.UNKNOWN_MEMBER_ID
