"""Whatever consumers do and when, no partition of a KIP-848 group is owned by two (row G4)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from raftctl.errors import ErrorCode
from tests.unit.broker.groups.consumer_harness import SESSION_MS, Consumer, ConsumerBench
from tests.unit.broker.groups.ownership import Ownership, check_shares

MEMBERS = st.integers(0, 4)
REGEX = "t|u.*"


class ConsumerMachine(RuleBasedStateMachine):
    """Consumers come, go, fall silent, lose answers and commit; topics come, grow and go; the
    coordinator moves; writes are refused.

    The model is what each consumer knows: its epoch, what it was told and what it has. It lets go
    of partitions when it likes, and never takes what it was not told of.
    """

    @initialize()
    def begin(self) -> None:
        self.bench = ConsumerBench()
        self.members = [
            Consumer(self.bench, f"m{number}", f"i{number}" if number == 4 else None)
            for number in range(5)
        ]
        self.committed: int | None = None
        self.ownership = Ownership()

    def _done(self, one: Consumer, response: object) -> None:
        if isinstance(response, ErrorCode):
            if response in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                one.epoch = 0
                one.has = one.told = frozenset()
            return
        # What it was told it owns from now on, in this epoch.
        self.ownership.own(one.epoch, one.told, one.member_id)

    @rule(index=MEMBERS)
    def beat(self, index: int) -> None:
        one = self.members[index]
        self._done(one, one.beat())

    @rule(index=MEMBERS, kind=st.sampled_from(["t", "u", "both", "regex", "range"]))
    def change(self, index: int, kind: str) -> None:
        one = self.members[index]
        changes: dict[str, dict[str, object]] = {
            "t": {"topic_names": ("t",), "topic_regex": ""},
            "u": {"topic_names": ("u",), "topic_regex": ""},
            "both": {"topic_names": ("t", "u"), "topic_regex": ""},
            "regex": {"topic_names": (), "topic_regex": REGEX},
            "range": {"server_assignor": "range"},
        }
        self._done(one, one.beat(**changes[kind]))

    @rule(index=MEMBERS)
    def lose_an_answer(self, index: int) -> None:
        one = self.members[index]
        epoch, has = one.epoch, one.has
        one.beat()
        # It has said what it has: what it was told of and has not taken is not its own any more.
        one.epoch, one.has, one.told = epoch, has, has

    @rule(index=MEMBERS)
    def obey(self, index: int) -> None:
        self.members[index].obey()

    @rule(index=MEMBERS, for_a_while=st.booleans())
    def leave(self, index: int, for_a_while: bool) -> None:
        one = self.members[index]
        epoch = -2 if for_a_while and one.instance_id is not None else -1
        response = self.bench.beat(one.member_id, epoch, instance_id=one.instance_id)
        if isinstance(response, dict):
            one.epoch = 0
            one.has = one.told = frozenset()

    @rule(ms=st.sampled_from([1, 10_000, SESSION_MS]))
    def sleep(self, ms: int) -> None:
        known = {one.member_id for one in self.members if one.epoch > 0}
        self.bench.sleep(ms)
        group = self.bench.core._consumers.groups.get("g")
        for one in self.members:
            # A consumer counts its own session, too: it stops before the coordinator gives up.
            if one.member_id in known and (group is None or one.member_id not in group.members):
                one.epoch = 0
                one.has = one.told = frozenset()

    @rule(name=st.sampled_from(["t", "u"]), partitions=st.integers(1, 4))
    def topics_change(self, name: str, partitions: int) -> None:
        if self.bench.image.topics.by_name(name) is None:
            self.bench.add_topic(name, partitions)
        else:
            self.bench.remove_topic(name)

    @rule(index=MEMBERS, offset=st.integers(0, 100))
    def commit(self, index: int, offset: int) -> None:
        one = self.members[index]
        if self.bench.commit(one.member_id, one.epoch, offset) is ErrorCode.NONE:
            group = self.bench.core._consumers.groups["g"]
            assert group.members[one.member_id].epoch == one.epoch
            self.committed = offset

    @rule()
    def fail_over(self) -> None:
        self.bench.fail_over()

    @rule(refused=st.booleans())
    def refuse_writes(self, refused: bool) -> None:
        self.bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE if refused else None

    @rule()
    def all_settle(self) -> None:
        """With nothing in the way, everything that is read is owned after some heartbeats."""
        self.bench.refuse = None
        self.bench.sleep(10_000)
        joined = [one for one in self.members if one.epoch > 0]
        for _ in range(12):
            for one in joined:
                self._done(one, one.beat())
                one.obey()
        group = self.bench.core._consumers.groups.get("g")
        away = group is not None and any(one.epoch < 0 for one in group.members.values())
        if joined and group is not None and len(group.members) == len(joined) and not away:
            assert group.state.value == "Stable"
            topics = self.bench.image.topics
            read = [t for n in group.subscribed_topics() if (t := topics.by_name(n)) is not None]
            wanted = sorted((t.topic_id, n) for t in read for n in range(len(t.partitions)))
            assert sorted(slot for one in joined for slot in one.has) == wanted

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        check_shares(one.has | one.told for one in self.members)

    @invariant()
    def committed_offsets_stay(self) -> None:
        assert self.bench.committed() == self.committed


@pytest.mark.req("G4")
def test_no_partition_has_two_owners() -> None:
    run_state_machine_as_test(
        ConsumerMachine, settings=settings(max_examples=80, stateful_step_count=40, deadline=None)
    )
