"""Whatever clients ask and when: a group's core does what a simple model says (rows G2, G3)."""

from __future__ import annotations

from typing import Any

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

from broker.groups.requests import Caller, DescribeGroup, Leave
from raftctl.errors import ErrorCode
from tests.unit.broker.groups.group_harness import Bench

MEMBERS = st.integers(0, 4)
SESSION_MS = 10_000


class GroupMachine(RuleBasedStateMachine):
    """Members come, go, fall silent and commit; the coordinator moves; writes are refused.

    The model: who has which assignment in which generation, and what was committed.
    """

    @initialize()
    def begin(self) -> None:
        self.bench = Bench()
        self.ids: list[str] = []
        """Every member id that was ever given out."""
        self.joining: dict[int, str] = {}
        """Tickets of joins, and who asked: empty if new."""
        self.syncing: dict[int, tuple[str, int]] = {}
        self.generations: dict[int, set[str]] = {}
        """Who is in each generation."""
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.committed: int | None = None
        self.newest = 0

    def _member(self, index: int) -> str:
        return self.ids[-1 - index % len(self.ids)] if self.ids else "nobody"

    @rule()
    def join_anew(self) -> None:
        self.joining[self.bench.begin(self.bench.join())] = ""

    @rule(index=MEMBERS)
    def join_again(self, index: int) -> None:
        member = self._member(index)
        self.joining[self.bench.begin(self.bench.join(member))] = member

    @rule(index=MEMBERS, back=st.integers(0, 2))
    def sync(self, index: int, back: int) -> None:
        member, generation = self._member(index), max(self.newest - back, 0)
        everybody = self.generations.get(generation, set())
        plan = {one: f"{generation}/{one}".encode() for one in sorted(everybody)}
        request_id = self.bench.begin(self.bench.sync(member, generation, plan))
        self.syncing[request_id] = (member, generation)

    @rule(index=MEMBERS, back=st.integers(0, 2))
    def heartbeat(self, index: int, back: int) -> None:
        member, generation = self._member(index), max(self.newest - back, 0)
        error = self.bench.heartbeat(member, generation)
        if error is ErrorCode.NONE:
            assert generation == self.newest
            assert member in self.generations.get(generation, set())

    @rule(index=MEMBERS, back=st.integers(0, 2), offset=st.integers(0, 100))
    def commit(self, index: int, back: int, offset: int) -> None:
        member, generation = self._member(index), max(self.newest - back, 0)
        error = self.bench.commit(member, generation, offset)
        if error is ErrorCode.NONE:
            assert generation == self.newest
            assert member in self.generations.get(generation, set())
            self.committed = offset

    @rule(offset=st.integers(0, 100))
    def commit_alone(self, offset: int) -> None:
        found = self.bench.ask(DescribeGroup("g"))
        error = self.bench.commit("", -1, offset)
        if self.bench.refuse is not None:
            assert error is not ErrorCode.NONE
        elif found is None or found["group_state"] == "Empty":
            assert error is ErrorCode.NONE
            self.committed = offset
        else:
            assert error is ErrorCode.UNKNOWN_MEMBER_ID

    @rule(index=MEMBERS)
    def leave(self, index: int) -> None:
        self.bench.ask(Leave("g", (Caller(self._member(index)),)))

    @rule(ms=st.sampled_from([1, SESSION_MS // 2, SESSION_MS, 60_000]))
    def sleep(self, ms: int) -> None:
        self.bench.sleep(ms)

    @rule()
    def fail_over(self) -> None:
        self.bench.fail_over()
        # Whoever waited was told by the shell that this is the coordinator no more.
        self.joining.clear()
        self.syncing.clear()
        group = self.bench.core._groups.get("g")
        known = 0 if group is None else group.generation
        assert known <= self.newest + 1
        assert all(generation <= known for generation, _ in self.assigned)
        self.newest = known

    @rule(refused=st.booleans())
    def refuse_writes(self, refused: bool) -> None:
        self.bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE if refused else None

    @invariant()
    def joins_end_in_generations(self) -> None:
        for request_id in [one for one in self.joining if one in self.bench.told]:
            asked, told = self.joining.pop(request_id), self.bench.told[request_id]
            if isinstance(told, ErrorCode) or told["error_code"]:
                continue
            generation, member = told["generation_id"], told["member_id"]
            assert asked in ("", member)
            if member not in self.ids:
                self.ids.append(member)
            self._note(generation, member, told)

    def _note(self, generation: int, member: str, told: dict[str, Any]) -> None:
        if generation != self.newest:
            # A rebalance of which nothing was written may be forgotten with its coordinator.
            self.generations[generation] = set()
            self.assigned = {k: v for k, v in self.assigned.items() if k[0] != generation}
        self.newest = generation
        self.generations[generation].add(member)
        if told["members"]:
            assert told["leader"] == member
            self.generations[generation] |= {one["member_id"] for one in told["members"]}

    @invariant()
    def assignments_are_the_leaders(self) -> None:
        for request_id in [one for one in self.syncing if one in self.bench.told]:
            (member, generation), told = self.syncing.pop(request_id), self.bench.told[request_id]
            if isinstance(told, ErrorCode) or told["error_code"]:
                continue
            assert generation == self.newest
            known = self.assigned.setdefault((generation, member), told["assignment"])
            assert known == told["assignment"]
            assert told["assignment"] in (b"", f"{generation}/{member}".encode())

    @invariant()
    def committed_offsets_stay(self) -> None:
        assert self.bench.committed() == self.committed

    @invariant()
    def the_members_are_those_of_the_model(self) -> None:
        found = self.bench.ask(DescribeGroup("g"))
        if found is not None and found["group_state"] == "Stable":
            members = {one["member_id"] for one in found["members"]}
            assert members <= self.generations.get(self.newest, set())


@pytest.mark.req("G2", "G3")
def test_a_group_does_what_the_model_does() -> None:
    run_state_machine_as_test(
        GroupMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
