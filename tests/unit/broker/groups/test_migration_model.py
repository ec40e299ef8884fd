"""Whatever consumers of both protocols do in one group, no partition is owned by two (row G4)."""

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
from tests.unit.broker.groups.classic_consumer import ClassicConsumer
from tests.unit.broker.groups.consumer_harness import Consumer, ConsumerBench
from tests.unit.broker.groups.ownership import Ownership, check_shares

NUMBERS = st.integers(0, 2)
CLASSIC_SESSION_MS = 10_000
ROUNDS = 18
STEPS = 3
"""That a consumer makes at least in the time of a heartbeat."""


class MigrationMachine(RuleBasedStateMachine):
    """Three consumers of each protocol come, go and fall silent; the group changes its protocol
    whenever one way or the other is open; the coordinator moves; writes are refused.

    The model is what each consumer reads. One of KIP-848 owns what it was told of, too.
    """

    @initialize(cooperative=st.booleans())
    def begin(self, cooperative: bool) -> None:
        self.bench = ConsumerBench()
        self.classic = [
            ClassicConsumer(self.bench, cooperative, "i" if number == 2 else None)
            for number in range(3)
        ]
        self.modern = [Consumer(self.bench, f"m{number}") for number in range(3)]
        self.started: dict[int, bool] = {}
        self.ownership = Ownership()
        self.committed: int | None = None

    # --- what consumers do ----------------------------------------------------------------------

    @rule(index=NUMBERS)
    def step(self, index: int) -> None:
        one = self.classic[index]
        self.started[index] = True
        one.step()
        self.ownership.own(one.told_in, one.has, one.member_id)

    @rule(index=NUMBERS)
    def beat(self, index: int) -> None:
        one = self.modern[index]
        response = one.beat()
        if response in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            one.epoch, one.has, one.told = 0, frozenset(), frozenset()
        elif not isinstance(response, ErrorCode):
            self.ownership.own(one.epoch, one.told, one.member_id)

    @rule(index=NUMBERS)
    def obey(self, index: int) -> None:
        self.modern[index].obey()

    @rule(index=NUMBERS)
    def leave(self, index: int) -> None:
        one = self.modern[index]
        if isinstance(self.bench.beat(one.member_id, -1), dict):
            one.epoch, one.has, one.told = 0, frozenset(), frozenset()

    @rule(index=NUMBERS)
    def classic_leaves(self, index: int) -> None:
        one = self.classic[index]
        if self.bench.refuse is None:
            one.leave()
            if not one.member_id:
                self.started.pop(index, None)

    @rule(index=NUMBERS, offset=st.integers(0, 100))
    def commit(self, index: int, offset: int) -> None:
        one = self.classic[index]
        if self.bench.commit(one.member_id or "-", one.generation, offset) is ErrorCode.NONE:
            self.committed = offset

    # --- what happens to them -------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 5_000, CLASSIC_SESSION_MS, 45_000]))
    def sleep(self, ms: int) -> None:
        self._sleep(ms)

    def _sleep(self, ms: int) -> None:
        """A consumer counts its own session, too: it stops before the coordinator gives up."""
        self.bench.sleep(ms)
        self._begin_anew_if_empty()
        known = self._member_ids()
        for one in self.modern:
            if one.member_id not in known:
                one.epoch, one.has, one.told = 0, frozenset(), frozenset()
        for classic in self.classic:
            if classic.member_id and classic.member_id not in known:
                classic.forget()

    def _begin_anew_if_empty(self) -> None:
        """A group without members may be of another protocol the next time, from epoch 1 on."""
        if not self._member_ids():
            self.ownership.begin_anew()

    def _member_ids(self) -> set[str]:
        consumers = self.bench.core._consumers.groups.get("g")
        group = self.bench.core._groups.get("g")
        return {*(consumers.members if consumers else ()), *(group.members if group else ())}

    @rule()
    def fail_over(self) -> None:
        self.bench.fail_over()
        for one in self.classic:
            # Its connection breaks: whoever waits asks again.
            if one.joining is not None or one.syncing is not None:
                one.joining = one.syncing = None
                one.must_join = True

    @rule(refused=st.booleans())
    def refuse_writes(self, refused: bool) -> None:
        self.bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE if refused else None

    @rule()
    def all_settle(self) -> None:
        """With nothing in the way, each partition has an owner after some time."""
        self.bench.refuse = None
        classic = [self.classic[index] for index in sorted(self.started)]
        modern = [one for one in self.modern if one.epoch > 0]
        for _ in range(ROUNDS):
            for index in sorted(self.started) * STEPS:
                self.step(index)
            for one in modern:
                self.beat(self.modern.index(one))
                one.obey()
            self._sleep(4_500)
        if classic or modern:
            read = [len(one.has) for one in classic] + [len(one.has) for one in modern]
            assert sum(read) == 6, "all partitions are read"

    # --- what holds -----------------------------------------------------------------------------

    @invariant()
    def nobody_has_what_another_has(self) -> None:
        self._begin_anew_if_empty()
        held = [one.has for one in self.classic]
        held += [one.has | one.told for one in self.modern]
        check_shares(held)

    @invariant()
    def committed_offsets_stay(self) -> None:
        assert self.bench.committed() == self.committed


@pytest.mark.req("G4")
def test_no_partition_has_two_owners_whatever_the_protocols() -> None:
    run_state_machine_as_test(
        MigrationMachine,
        settings=settings(max_examples=25, stateful_step_count=30, derandomize=True),
    )
