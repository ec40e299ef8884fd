"""Groups that change their protocol while they have members (KIP-848, "Migration"; row G4)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.record_format import version_of
from broker.groups._consumer_records import ConsumerKey, Kind, consumer_key_of
from broker.groups.classic import assignment
from broker.groups.classic._embedded_protocol import subscription
from broker.groups.requests import Caller, Leave
from broker.types import TopicPartition
from raftctl.errors import ErrorCode
from tests.unit.broker.groups.classic_consumer import ClassicConsumer
from tests.unit.broker.groups.consumer_harness import (
    REBALANCE_MS,
    Consumer,
    ConsumerBench,
)

pytestmark = pytest.mark.req("G4")
KINDS = pytest.mark.parametrize("cooperative", [False, True])
Members = list[ClassicConsumer | Consumer]


@pytest.fixture
def bench() -> ConsumerBench:
    return ConsumerBench()


def go_on(*members: ClassicConsumer | Consumer, rounds: int = 16) -> None:
    """Each does what its protocol says, in turn."""
    for _ in range(rounds):
        for one in members:
            if isinstance(one, ClassicConsumer):
                one.step()
            else:
                one.beat()
                one.obey()


def sizes(*members: ClassicConsumer | Consumer) -> list[int]:
    """How many partitions each has, none of them two."""
    slots = [slot for one in members for slot in one.has]
    assert len(slots) == len(set(slots))
    return [len(one.has) for one in members]


def classic(bench: ConsumerBench, count: int = 2, *, cooperative: bool) -> list[ClassicConsumer]:
    members = [ClassicConsumer(bench, cooperative) for _ in range(count)]
    go_on(*members)
    assert sizes(*members) == [6 // count] * count
    return members


def kind(bench: ConsumerBench) -> str:
    (found,) = bench.listed()
    return str(found["group_type"])


@KINDS
def test_a_group_is_upgraded_and_its_members_go_on(bench: ConsumerBench, cooperative: bool) -> None:
    first, second = classic(bench, cooperative=cooperative)
    bench.commit(first.member_id, first.generation, 7)
    ids, generation = [one.member_id for one in (first, second)], first.generation
    third = Consumer(bench, "c")
    # It is a member at once, and others have yet to let go of what it shall have.
    assert third.beat()["member_epoch"] == generation + 1
    assert (kind(bench), third.told) == ("consumer", frozenset())
    go_on(first, second, third)
    assert sizes(first, second, third) == [2, 2, 2]
    assert [one.member_id for one in (first, second)] == ids
    assert set(first.errors + second.errors) <= {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
    assert bench.committed() == 7
    assert bench.described()["group_state"] == "Stable"
    assert sorted(one["member_type"] for one in bench.described()["members"]) == [0, 0, 1]
    bench.fail_over()
    go_on(first, second, third)
    assert sizes(first, second, third) == [2, 2, 2]


@KINDS
def test_a_group_is_downgraded_when_its_last_consumer_member_leaves(
    bench: ConsumerBench, cooperative: bool
) -> None:
    first, second = classic(bench, cooperative=cooperative)
    third = Consumer(bench, "c")
    go_on(first, second, third)
    epoch = third.epoch
    bench.beat("c", -1)
    assert kind(bench) == "classic"
    errors = len(first.errors)
    go_on(first, second)
    assert sizes(first, second) == [3, 3]
    assert set(first.errors[errors:]) == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert first.generation == second.generation > epoch
    assert bench.state() == "Stable"
    bench.fail_over()
    assert bench.heartbeat(first.member_id, first.generation) == ErrorCode.NONE
    assert bench.described() == ErrorCode.GROUP_ID_NOT_FOUND


@KINDS
def test_a_member_of_kip_848_is_removed_as_classic_ones_are(
    bench: ConsumerBench, cooperative: bool
) -> None:
    first, second = classic(bench, cooperative=cooperative)
    go_on(first, second, Consumer(bench, "c"))
    bench.ask(Leave("g", (Caller("c"),), bench.image.topics))
    assert kind(bench) == "classic"
    go_on(first, second)
    assert sizes(first, second) == [3, 3]


@KINDS
def test_classic_members_find_that_topics_have_grown(
    bench: ConsumerBench, cooperative: bool
) -> None:
    """Though the member of KIP-848 is silent meanwhile."""
    first, second = classic(bench, cooperative=cooperative)
    third = Consumer(bench, "c")
    go_on(first, second, third)
    epoch = first.generation
    bench.remove_topic("t")
    bench.add_topic("t", 9)
    go_on(first, second)
    assert first.generation == second.generation == epoch + 1
    assert sizes(first, second) == [3, 3]
    go_on(first, second)
    assert first.generation == epoch + 1


def test_members_join_also_if_the_coordinator_moves_right_after_a_downgrade(
    bench: ConsumerBench,
) -> None:
    """The rebalance is not of the log: without it nobody would read what the last one had."""
    members = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    go_on(*members, third)
    bench.beat("c", -1)
    bench.fail_over()
    assert bench.state() == "PreparingRebalance"
    go_on(*members)
    assert sizes(*members) == [3, 3]


@KINDS
@pytest.mark.parametrize("moves", [False, True])
def test_who_has_not_joined_yet_has_its_partitions_through_another_upgrade(
    bench: ConsumerBench, cooperative: bool, moves: bool
) -> None:
    members = classic(bench, cooperative=cooperative)
    third = Consumer(bench, "c")
    third.beat()
    bench.beat("c", -1)
    assert bench.state() == "PreparingRebalance"
    if moves:
        bench.fail_over()
    fourth = Consumer(bench, "d")
    go_on(fourth)
    assert sizes(*members, fourth) == [3, 3, 0]
    go_on(*members, fourth)
    if moves:
        # In which epoch they are only they know: they join anew, and their former selves expire.
        bench.sleep(9_999)
        go_on(*members, fourth)
        bench.sleep(1)
        go_on(*members, fourth)
    assert sizes(*members, fourth) == [2, 2, 2]


def test_a_silent_consumer_member_is_the_last_one_too(bench: ConsumerBench) -> None:
    members = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    go_on(*members, third)
    for _ in range(6):
        bench.sleep(9_000)
        go_on(*members, rounds=4)
    assert kind(bench) == "classic"
    assert sizes(*members) == [3, 3]


def test_a_refused_downgrade_is_made_good_by_the_next_request(bench: ConsumerBench) -> None:
    members = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    go_on(*members, third)
    bench.refuse_after(1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.beat("c", -1)
    assert kind(bench) == "consumer"
    go_on(*members)
    assert kind(bench) == "classic"
    assert sizes(*members) == [3, 3]


def test_a_refused_upgrade_changes_nothing(bench: ConsumerBench) -> None:
    members = classic(bench, cooperative=True)
    bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.beat("c") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuse = None
    assert kind(bench) == "classic"
    assert bench.heartbeat(members[0].member_id, members[0].generation) == ErrorCode.NONE
    bench.refuse_after(1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # Members are there, targets not yet: the next heartbeat goes on from there.
    assert bench.beat("c") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kind(bench) == "consumer"
    third = Consumer(bench, "c")
    go_on(*members, third)
    assert sizes(*members, third) == [2, 2, 2]


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("Upgrade", True, False),
        ("DOWNGRADE", False, True),
        ("bidirectional", True, True),
    ],
)
def test_the_policy_says_which_way(policy: str, upgrades: bool, downgrades: bool) -> None:
    bench = ConsumerBench(group_consumer_migration_policy=policy)
    members = classic(bench, cooperative=True)
    assert (bench.beat("c") != ErrorCode.GROUP_ID_NOT_FOUND) is upgrades
    assert kind(bench) == ("consumer" if upgrades else "classic")
    # A classic member may join a group of the consumer protocol whatever the policy.
    other = ConsumerBench(group_consumer_migration_policy=policy)
    first, second = Consumer(other, "c"), ClassicConsumer(other)
    go_on(first, second)
    assert sizes(first, second) == [3, 3]
    other.beat("c", -1)
    assert kind(other) == ("classic" if downgrades else "consumer")
    go_on(second)
    assert sizes(second) == [6]
    assert sizes(*members) == [3, 3]


@KINDS
def test_members_that_wait_for_a_rebalance_are_told_to_join_again(
    bench: ConsumerBench, cooperative: bool
) -> None:
    first, second = classic(bench, cooperative=cooperative)
    newest = ClassicConsumer(bench, cooperative)
    newest.step()
    newest.step()
    newest.step()
    first.step()
    first.step()
    assert newest.joining is not None
    assert first.joining is not None
    third = Consumer(bench, "c")
    third.beat()
    for one in (newest, first):
        one.step()
        assert one.errors[-1] == ErrorCode.REBALANCE_IN_PROGRESS
    go_on(first, second, newest, third)
    assert sorted(sizes(first, second, newest, third)) == [1, 1, 2, 2]


def test_what_a_member_has_yet_to_let_go_of_is_given_to_nobody(bench: ConsumerBench) -> None:
    """Its SyncGroup is answered without a partition, which it still reads when others come."""
    first = ClassicConsumer(bench, cooperative=True)
    go_on(first)
    second = ClassicConsumer(bench, cooperative=True)
    go_on(second, rounds=3)
    while first.syncing is None:
        first.step()
    assert len(first.has) == 6
    third = Consumer(bench, "c")
    go_on(second, third)
    assert sizes(first, second, third) == [6, 0, 0]
    go_on(first, second, third)
    assert sizes(first, second, third) == [2, 2, 2]


def test_who_does_not_join_in_time_is_out(bench: ConsumerBench) -> None:
    first, second = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    third.beat()
    # It is heard of, but does not do what it is told.
    for _ in range(9):
        bench.sleep(8_000)
        bench.heartbeat(first.member_id, first.generation)
        go_on(second, third, rounds=4)
    assert bench.heartbeat(first.member_id, first.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sizes(second, third) == [3, 3]


def test_who_does_not_ask_for_its_partitions_in_time_is_out(bench: ConsumerBench) -> None:
    third = Consumer(bench, "c")
    third.settle()
    answer = bench.ask(bench.join(rebalance_timeout_ms=1_000))
    assert len(bench.described()["members"]) == 2
    bench.sleep(1_000)
    assert bench.heartbeat(answer["member_id"], answer["generation_id"]) == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_classic_members_are_silent_for_their_own_session(bench: ConsumerBench) -> None:
    first, second = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    go_on(first, second, third)
    bench.fail_over()
    bench.sleep(9_999)
    go_on(first, third, rounds=1)
    bench.sleep(1)
    go_on(first, third)
    assert sizes(first, third) == [3, 3]
    assert bench.heartbeat(second.member_id, second.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_with_the_other_protocol(bench: ConsumerBench) -> None:
    first = ClassicConsumer(bench, cooperative=True, instance_id="i")
    second = ClassicConsumer(bench, cooperative=True)
    go_on(first, second)
    had = first.has
    now = Consumer(bench, "c", "i")
    now.beat()
    assert now.told == had
    go_on(second, now)
    assert sizes(second, now) == [3, 3]
    first.step()
    assert first.errors[-1] == ErrorCode.FENCED_INSTANCE_ID
    # And back: then nobody is of the consumer protocol any more.
    again = ClassicConsumer(bench, cooperative=True, instance_id="i")
    go_on(second, again)
    assert kind(bench) == "classic"
    assert sizes(second, again) == [3, 3]


def test_members_leave_each_on_its_own(bench: ConsumerBench) -> None:
    first, second = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    go_on(first, second, third)
    answer = bench.ask(Leave("g", (Caller(first.member_id), Caller("x"))))
    errors = [one["error_code"] for one in answer["members"]]
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    go_on(second, third)
    assert sizes(second, third) == [3, 3]


def test_classic_members_commit_in_their_generation(bench: ConsumerBench) -> None:
    first, _second = classic(bench, cooperative=True)
    third = Consumer(bench, "c")
    go_on(first, _second, third)
    name, generation = first.member_id, first.generation
    assert bench.commit(name, generation - 1, 1) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit(name, generation, 2) == ErrorCode.NONE
    bench.beat("c", -1)
    # Until the next generation it goes on in the epoch it knows.
    assert bench.commit(name, generation, 3) == ErrorCode.NONE
    assert bench.heartbeat(name, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.committed() == 3


def test_groups_that_cannot_be_upgraded_stay_as_they_are() -> None:
    twice = assignment([TopicPartition("t", 0)])
    for assignments, protocol_type in ((b"x", "consumer"), (twice, "consumer"), (b"", "connect")):
        bench = ConsumerBench()
        ids = [bench.begin(bench.join(protocol_type=protocol_type)) for _ in range(2)]
        first = bench.told[ids[0]]["member_id"]
        ids[0] = bench.begin(bench.join(first, protocol_type=protocol_type))
        one, other = (bench.told[request_id]["member_id"] for request_id in ids)
        bench.begin(bench.sync(one, 2, {one: assignments, other: assignments}))
        assert bench.beat("c") == ErrorCode.GROUP_ID_NOT_FOUND
        assert bench.beat("c", 5) == ErrorCode.GROUP_ID_NOT_FOUND
        assert kind(bench) == "classic"


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": (("unheard-of", subscription(["t"])),)},
        {"protocols": (("range", b"\0"),)},
    ],
)
def test_who_does_not_fit_in_does_not_join(bench: ConsumerBench, changes: dict[str, Any]) -> None:
    members = classic(bench, cooperative=False)
    go_on(*members, Consumer(bench, "c"))
    written = len(bench.log)
    assert bench.ask(bench.join(**changes)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.ask(bench.join(session_timeout_ms=1)) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert len(bench.log) == written


def test_the_record_of_a_classic_member_is_apache_kafkas(bench: ConsumerBench) -> None:
    """The bytes, written down from the message files of 4.1."""
    Consumer(bench, "c").settle()
    metadata = subscription(["t"])
    bench.ask(bench.join(protocols=(("range", metadata),), rebalance_timeout_ms=REBALANCE_MS))
    keys = {consumer_key_of(version_of(one.key), one.key): one.value for one in bench.log}
    value = keys[ConsumerKey(Kind.MEMBER, "g", "c-1")]
    said = b"\0\0\x27\x10" + b"\x02\x06range" + bytes([len(metadata) + 1]) + metadata + b"\0\0"
    head = b"\0\0\0\0\x02c\x01\x02\x02t\0\0\0\x4e\x20\0"
    assert value == head + b"\1\0" + bytes([len(said) + 1]) + b"\1" + said
