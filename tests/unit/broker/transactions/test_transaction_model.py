"""Whatever producers, crashes and time do to a coordinator, it agrees with a plain model.

The model is one transactional id: who may write, what is open, and how each transaction ended. An
outcome that was told never changes; markers say what was decided, and every transaction ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.transactions import ProducerGoesOn, TransactionState
from broker.transactions._core import MarkersWritten, Settings, WriteMarkers
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.transactions.transaction_harness import Rig

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
TIMEOUT_MS = 5_000
PATIENCE_MS = 1_000
VERSIONS = st.sampled_from([0, 2])


class Coordinator(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(Settings(abort_interval_ms=500, patience_ms=PATIENCE_MS))
        self.current: ProducerGoesOn | None = None
        """The producer that may write, as far as it was told."""
        self.zombies: list[ProducerGoesOn] = []
        self.open: set[TopicPartition] = set()
        self.waiting: tuple[int, set[TopicPartition]] | None = None
        """The id of a patient request, and what it adds."""
        self.late: list[WriteMarkers] = []
        """Errands whose reports may come at any time."""
        self.told: dict[tuple[int, int], bool] = {}
        """The outcome of transactions by the producer and epoch of their markers."""

    def attempt(self, call: Callable[[], object]) -> object:
        """What the call returns; the error's code if it is refused."""
        before = list(self.rig.log)
        try:
            return call()
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                assert self.rig.log == before
            return error.code

    @rule()
    def begin(self) -> None:
        found = self.attempt(self.rig.init)
        if isinstance(found, ProducerGoesOn):
            assert not self.open
            self.replace(found)
        else:
            assert found is ErrorCode.CONCURRENT_TRANSACTIONS
            self.expelled()

    def replace(self, found: ProducerGoesOn | None) -> None:
        if self.current is not None and self.current != found:
            self.zombies.append(self.current)
        self.current = found

    def expelled(self) -> None:
        """What was open is aborted, and its producer fenced."""
        if self.open:
            self.replace(None)
            self.open = set()

    @precondition(lambda self: self.current is not None)
    @rule(partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add(self, partitions: set[TopicPartition]) -> None:
        assert self.current is not None
        current = self.current
        found = self.attempt(lambda: self.rig.add(current, *partitions))
        if found is None:
            self.open |= partitions
        else:
            assert found is ErrorCode.CONCURRENT_TRANSACTIONS
            assert self.rig.core.known["x"].state.is_prepared

    @precondition(lambda self: self.current is not None and self.waiting is None)
    @rule(partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add_patiently(self, partitions: set[TopicPartition]) -> None:
        assert self.current is not None
        ending = self.rig.core.known["x"].state.is_prepared
        self.waiting = self.rig.add_patiently(self.current, *partitions), partitions
        self.answers_come()
        assert (self.waiting is not None) == ending

    def answers_come(self) -> None:
        """To the request that waits, if it has its answer."""
        if self.waiting is None or self.waiting[0] not in self.rig.later:
            return
        request_id, partitions = self.waiting
        self.waiting = None
        answer = self.rig.later[request_id]
        if isinstance(answer, KafkaError):
            assert answer.code is ErrorCode.CONCURRENT_TRANSACTIONS
        else:
            self.open |= partitions

    @precondition(lambda self: self.current is not None and self.open)
    @rule(commit=st.booleans(), version=VERSIONS)
    def end(self, commit: bool, version: int) -> None:
        assert self.current is not None
        following = self.rig.end(self.current, commit=commit, version=version)
        asked = self.rig.commands[-1]
        assert (set(asked.partitions), asked.commit) == (self.open, commit)
        self.told[asked.producer_id, asked.producer_epoch] = commit
        self.open = set()
        if following != self.current:
            self.replace(following)

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), commit=st.booleans(), version=VERSIONS)
    def zombie_acts(self, data: st.DataObject, commit: bool, version: int) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        known = self.rig.core.known["x"]
        fenced = ErrorCode.PRODUCER_FENCED
        if known.state.is_prepared:
            fenced = ErrorCode.CONCURRENT_TRANSACTIONS
        assert self.attempt(lambda: self.rig.add(zombie)) is fenced
        assert self.attempt(lambda: self.rig.init(before=zombie)) is fenced
        found = self.attempt(lambda: self.rig.end(zombie, commit=commit, version=version))
        # Only what has ended just so may be told again.
        if isinstance(found, ProducerGoesOn):
            assert known.state.is_commit == commit
        assert self.rig.core.known["x"] == known

    @precondition(lambda self: self.rig.commands)
    @rule()
    def markers_are_written(self) -> None:
        self.late += self.rig.commands
        self.rig.write_markers()
        self.answers_come()
        assert self.waiting is None

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def a_report_comes_again(self, data: st.DataObject) -> None:
        late = data.draw(st.sampled_from(self.late))
        known = self.rig.core.known["x"]
        if (known.producer_id, known.producer_epoch) != (late.producer_id, late.producer_epoch):
            self.rig.ask(MarkersWritten("x", late.producer_id, late.producer_epoch))
            assert self.rig.core.known["x"] == known

    @rule()
    def another_broker_takes_over(self) -> None:
        self.late += self.rig.commands
        self.rig.fail_over()
        self.waiting = None

    @rule(ms=st.integers(1, 3_000))
    def time_passes(self, ms: int) -> None:
        self.rig.pass_time(ms)
        self.answers_come()
        assert self.waiting is None or ms < PATIENCE_MS
        known = self.rig.core.known.get("x")
        if self.open and known is not None and known.state is not TransactionState.ONGOING:
            assert known.state is TransactionState.PREPARE_ABORT
            self.expelled()

    @invariant()
    def what_was_told_holds(self) -> None:
        known = self.rig.core.known.get("x")
        if known is None:
            return
        for one in self.rig.commands:
            key = one.producer_id, one.producer_epoch
            assert one.coordinator_epoch == 6
            if key in self.told and one.client_version >= 2:
                assert one.commit == self.told[key]
        assert (known.state is TransactionState.ONGOING) == bool(self.open)
        if self.open:
            assert known.partitions == self.open
        assert known.state.is_prepared == bool(self.rig.commands)

    def teardown(self) -> None:
        """Left alone, whatever is open ends."""
        for _ in range(90):
            self.rig.pass_time(1_000)
            self.rig.write_markers()
        known = self.rig.core.known.get("x")
        assert known is None or not (known.state.is_prepared or known.partitions)


test_the_coordinator_agrees_with_a_plain_model = pytest.mark.req("T2", "T3")(Coordinator.TestCase)
Coordinator.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
