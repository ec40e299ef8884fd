"""Consumer groups of KIP-848, as the KIP says (row G4)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.record_format import version_of
from broker.groups import CommittedOffset
from broker.groups._consumer_records import ConsumerKey, Kind, consumer_key_of, value_of
from broker.groups.requests import (
    Caller,
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
)
from raftctl.errors import ErrorCode
from tests.unit.broker.groups.consumer_harness import (
    REBALANCE_MS,
    SESSION_MS,
    Consumer,
    ConsumerBench,
    numbers,
    settled,
)
from tests.unit.broker.groups.group_harness import P0

pytestmark = pytest.mark.req("G4")
EVERY_MINUTE = {"offsets_retention_minutes": "1", "offsets_retention_check_interval_ms": "60000"}


@pytest.fixture
def bench() -> ConsumerBench:
    return ConsumerBench()


def three(bench: ConsumerBench) -> list[Consumer]:
    members = [Consumer(bench, name) for name in ("a", "b", "c")]
    settled(*members)
    return members


# --- assignments ----------------------------------------------------------------------------------


def test_one_heartbeat_makes_a_member_with_its_partitions(bench: ConsumerBench) -> None:
    response = bench.beat("a")
    assert (response["member_id"], response["member_epoch"]) == ("a", 1)
    assert response["heartbeat_interval_ms"] == 5_000
    (topic,) = response["assignment"]["topic_partitions"]
    assert topic["partitions"] == [0, 1, 2, 3, 4, 5]
    assert bench.described()["group_state"] == "Stable"
    # Nothing has changed: nothing is written or told.
    written = len(bench.log)
    assert bench.beat("a", 1)["assignment"] is None
    assert len(bench.log) == written


def test_a_partition_moves_when_its_owner_has_let_go_of_it(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    a.settle()
    assert b.beat()["member_epoch"] == 2
    assert b.told == frozenset()
    assert bench.described()["group_state"] == "Reconciling"
    # It is told what it keeps, and stays in its epoch until it has said that the rest is gone.
    assert a.beat()["member_epoch"] == 1
    assert len(a.told) == 3
    b.beat()
    assert b.told == frozenset()
    a.obey()
    assert a.beat()["member_epoch"] == 2
    b.beat()
    assert (len(b.told), b.told & a.has) == (3, frozenset())
    assert bench.described()["group_state"] == "Stable"


def test_a_member_that_says_nothing_of_its_partitions_may_still_read_them(
    bench: ConsumerBench,
) -> None:
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    a.settle()
    b.beat()
    for _ in range(2):
        assert bench.beat("a", 1)["member_epoch"] == 1
        b.beat()
        assert b.told == frozenset()
    a.settle()
    b.beat()
    assert (a.epoch, len(b.told)) == (2, 3)


def test_others_go_on_reading_while_one_comes_or_goes(bench: ConsumerBench) -> None:
    a, b, c = three(bench)
    assert [len(one.has) for one in (a, b, c)] == [2, 2, 2]
    kept = a.has, b.has
    c.beat()
    bench.beat("c", -1)
    settled(a, b)
    assert sorted(numbers(a) + numbers(b)) == [0, 1, 2, 3, 4, 5]
    assert (a.has > kept[0], b.has > kept[1]) == (True, True)


def test_the_assignor_that_most_members_ask_for_is_taken(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    bench.add_topic("u", 3)
    for _ in range(4):
        for one in (a, b):
            one.beat(server_assignor="range", topic_names=("t", "u"))
            one.obey()
    assert (numbers(a), numbers(b)) == ([0, 1, 2], [3, 4, 5])
    assert (numbers(a, "u"), numbers(b, "u")) == ([0, 1], [2])
    assert bench.described()["assignor_name"] == "range"


def test_topics_that_come_grow_and_go_are_followed(bench: ConsumerBench) -> None:
    a = Consumer(bench, "a")
    a.beat(topic_names=("t", "u"))
    a.obey()
    assert len(a.has) == 6
    bench.add_topic("u", 2)
    a.settle()
    assert numbers(a, "u") == [0, 1]
    bench.remove_topic("t")
    a.settle()
    assert (numbers(a), numbers(a, "u")) == ([], [0, 1])
    assert a.epoch == 3


def test_a_regular_expression_follows_the_topics(bench: ConsumerBench) -> None:
    a = Consumer(bench, "a")
    bench.add_topic("logs-1", 1)
    a.beat(topic_names=None, topic_regex="logs-.*")
    a.obey()
    assert (numbers(a), numbers(a, "logs-1")) == ([], [0])
    bench.add_topic("logs-2", 1)
    bench.add_topic("no-logs-2", 1)
    a.settle()
    # Expressions are not looked at all the time.
    assert numbers(a, "logs-2") == []
    bench.sleep(10_000)
    a.settle()
    assert numbers(a, "logs-2") == [0]
    assert len(a.has) == 2
    bench.fail_over()
    bench.remove_topic("logs-1")
    a.settle()
    assert (numbers(a, "logs-1"), numbers(a, "logs-2")) == ([], [0])
    a.beat(topic_names=("t",), topic_regex="")
    a.settle()
    assert len(numbers(a)) == 6
    assert bench.core._consumers.groups["g"].regexes == {}
    assert bench.beat("b", topic_regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.req("S4")
def test_an_expression_stands_for_topics_that_the_member_may_describe(bench: ConsumerBench) -> None:
    a = Consumer(bench, "a")
    hidden = {"logs-1"}
    for name in ("logs-1", "logs-2"):
        bench.add_topic(name, 1)

    def settle(beats: int = 3, **changes: Any) -> None:
        for _ in range(beats):
            bench.sleep(SESSION_MS // 3)
            a.beat(may_describe=lambda name: name not in hidden, **changes)
            a.obey()

    settle(1, topic_names=None, topic_regex="logs-.*")
    assert (numbers(a, "logs-1"), numbers(a, "logs-2")) == ([], [0])
    # A rule that changes has effect when expressions are matched again: no topic shows it.
    hidden.clear()
    settle()
    assert numbers(a, "logs-1") == []
    long = 3 * 600_000 // SESSION_MS + 3
    settle(long)
    assert (numbers(a, "logs-1"), numbers(a, "logs-2")) == ([0], [0])
    hidden.add("logs-2")
    settle(long)
    assert (numbers(a, "logs-1"), numbers(a, "logs-2")) == ([0], [])


# --- who is no member -----------------------------------------------------------------------------


def test_who_is_silent_for_a_session_is_out(bench: ConsumerBench) -> None:
    a, b, c = three(bench)
    bench.sleep(SESSION_MS - 1)
    settled(a, b)
    bench.sleep(1)
    settled(a, b)
    assert sorted(numbers(a) + numbers(b)) == [0, 1, 2, 3, 4, 5]
    assert c.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    c.epoch = 0
    settled(a, b, c)
    assert [len(one.has) for one in (a, b, c)] == [2, 2, 2]


def test_who_does_not_let_go_in_time_is_out(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    a.settle()
    b.beat()
    a.beat()
    for _ in range(4):
        bench.sleep(REBALANCE_MS // 4)
        error = a.beat()
    assert error == ErrorCode.UNKNOWN_MEMBER_ID
    settled(b)
    assert len(b.has) == 6


def test_timeouts_hold_after_a_failover(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    a.settle()
    b.beat()
    a.beat()
    bench.fail_over()
    bench.sleep(REBALANCE_MS)
    assert a.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    bench.sleep(SESSION_MS)
    assert bench.described()["group_state"] == "Empty"


def test_an_epoch_that_is_not_the_members_is_fenced(bench: ConsumerBench) -> None:
    a, b, _c = three(bench)
    assert bench.beat("a", a.epoch + 1) == ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.beat("a", 1) == ErrorCode.FENCED_MEMBER_EPOCH
    # Who is fenced comes again, under the same id and with nothing.
    a.epoch = 0
    assert a.beat()["member_epoch"] == b.epoch
    assert len(a.told) == 2


def test_an_answer_that_was_lost_is_asked_for_again(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    a.settle()
    bench.add_topic("u", 1)
    bench.beat("a", 1, topic_names=("t", "u"))
    again = bench.beat("a", 1, owned=tuple(a.owned()))
    assert again["member_epoch"] == 2
    # The same of the first answer: the member has its id from itself.
    b.beat()
    written = len(bench.log)
    assert bench.beat("b")["member_epoch"] == 3
    assert len(bench.log) == written


@pytest.mark.parametrize(
    ("member_id", "epoch", "changes", "error"),
    [
        ("a", 0, {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ("", 0, {}, ErrorCode.INVALID_REQUEST),
        ("", 1, {}, ErrorCode.INVALID_REQUEST),
        ("n", 0, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ("n", 0, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ("n", 0, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ("n", 0, {"owned": None}, ErrorCode.INVALID_REQUEST),
        ("n", 0, {"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ("n", 0, {"server_assignor": "x"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ("n", 0, {}, ErrorCode.GROUP_MAX_SIZE_REACHED),
        ("n", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("n", 1, {"group_id": "none"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ("n", 1, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("n", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -2, {}, ErrorCode.INVALID_REQUEST),
        ("a", -3, {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_changes_nothing(
    member_id: str, epoch: int, changes: dict[str, object], error: ErrorCode
) -> None:
    bench = ConsumerBench(group_consumer_max_size="3")
    three(bench)
    before = (bench.described(), list(bench.log))
    assert bench.beat(member_id, epoch, **changes) == error
    assert (bench.described(), bench.log) == before


def test_a_refused_write_is_made_good_by_the_next_heartbeat(bench: ConsumerBench) -> None:
    bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.beat("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.described() == ErrorCode.GROUP_ID_NOT_FOUND
    bench.refuse = None
    a, b = Consumer(bench, "a"), Consumer(bench, "b")
    settled(a, b)
    bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.sleep(SESSION_MS)
    assert len(bench.described()["members"]) == 2
    bench.refuse = None
    bench.sleep(1_000)
    assert bench.described()["members"] == []
    bench.refuse = ErrorCode.MESSAGE_TOO_LARGE
    assert bench.beat("a") == ErrorCode.UNKNOWN_SERVER_ERROR


def test_who_never_hears_that_it_joined_is_out_after_a_session(bench: ConsumerBench) -> None:
    bench.refuse_after(1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert bench.beat("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(bench.described()["members"]) == 1
    bench.sleep(SESSION_MS + 1_000)
    assert bench.described()["members"] == []


def test_older_clients_get_their_ids_from_the_coordinator(bench: ConsumerBench) -> None:
    response = bench.beat("", brings_member_id=False)
    assert bench.beat(response["member_id"], 1)["member_epoch"] == 1


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_keeps_its_partitions_while_it_is_away(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a", "i"), Consumer(bench, "b")
    settled(a, b)
    again = Consumer(bench, "a2", "i")
    assert again.beat() == ErrorCode.UNRELEASED_INSTANCE_ID
    left = bench.beat("a", -2, instance_id="i")
    assert left["member_epoch"] == -2
    settled(b)
    assert len(b.has) == 3
    epoch = b.epoch
    bench.fail_over()
    again.beat()
    again.obey()
    assert (again.has, again.epoch) == (a.has, epoch)
    assert a.beat() == ErrorCode.FENCED_INSTANCE_ID
    assert bench.beat("a2", -1, instance_id="i")["member_epoch"] == -1
    settled(b)
    assert len(b.has) == 6


def test_a_static_member_that_stays_away_is_out(bench: ConsumerBench) -> None:
    a, b = Consumer(bench, "a", "i"), Consumer(bench, "b")
    settled(a, b)
    bench.beat("a", -2, instance_id="i")
    for _ in range(3):
        bench.sleep(SESSION_MS // 3)
        b.settle()
    assert len(b.has) == 6


# --- offsets --------------------------------------------------------------------------------------


def test_offsets_are_committed_in_the_members_epoch(bench: ConsumerBench) -> None:
    a = Consumer(bench, "a")
    a.settle()
    assert bench.commit("a", 1, 5) == ErrorCode.NONE
    assert bench.commit("a", 0, 6) == ErrorCode.STALE_MEMBER_EPOCH
    assert bench.commit("b", 1, 6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit("", -1, 6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit("a", 0, 6, producer=(1, 0)) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit("", -1, 6, producer=(1, 0)) == ErrorCode.NONE
    assert bench.committed() == 5
    for caller, error in (
        (Caller("a", None, 1), None),
        (Caller("a", None, 2), ErrorCode.STALE_MEMBER_EPOCH),
        (Caller("b", None, 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        found = bench.ask(FetchOffsets("g", (P0,), caller=caller))
        assert error is None or found == error
    bench.fail_over()
    assert (bench.committed(), bench.beat("a", 1)["member_epoch"]) == (5, 1)


def test_offsets_in_use_stay_and_others_go_with_their_group() -> None:
    bench = ConsumerBench(**EVERY_MINUTE)
    a = Consumer(bench, "a")
    a.settle()
    bench.commit("a", 1, 5)
    assert bench.ask(DeleteOffsets("g", (P0,))) == {P0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert bench.ask(DeleteGroup("g")) == ErrorCode.NON_EMPTY_GROUP
    for _ in range(6):
        bench.sleep(30_000)
        a.beat()
    assert bench.committed() == 5
    bench.beat("a", -1)
    bench.sleep(120_000)
    assert bench.committed() is None
    assert bench.described() == ErrorCode.GROUP_ID_NOT_FOUND
    bench.fail_over()
    assert bench.listed() == []


# --- the two protocols ----------------------------------------------------------------------------


def test_a_group_without_members_changes_its_protocol_and_keeps_its_offsets(
    bench: ConsumerBench,
) -> None:
    first = bench.ask(bench.join())["member_id"]
    bench.ask(bench.sync(first, 1, {first: b"x"}))
    bench.commit(first, 1, 7)
    assert bench.beat("a") == ErrorCode.GROUP_ID_NOT_FOUND
    bench.sleep(10_000)
    a = Consumer(bench, "a")
    a.settle()
    assert bench.committed() == 7
    assert bench.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    bench.fail_over()
    assert bench.state() is None
    assert bench.beat("a", 1)["member_epoch"] == 1
    bench.beat("a", -1)
    assert bench.ask(bench.join())["generation_id"] == 1
    assert bench.described() == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.committed() == 7
    bench.fail_over()
    assert bench.described() == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_with_their_protocol(bench: ConsumerBench) -> None:
    bench.beat("a")
    committed = CommittedOffset(1, -1, "", bench.now.wall_ms)
    bench.ask(Commit("simple", Caller(""), ((P0, committed),)))

    def listed(states: str = "", types: str = "") -> list[tuple[str, str]]:
        found = bench.listed(states.split(), types.split())
        return [(one["group_id"], one["group_type"]) for one in found]

    assert listed() == [("simple", "classic"), ("g", "consumer")]
    assert listed(types="consumer") == listed(states="stable") == [("g", "consumer")]
    assert listed(types="classic", states="stable") == []
    assert bench.ask(DescribeGroup("g")) is None


def test_only_the_protocols_of_the_configuration_are_served() -> None:
    bench = ConsumerBench(group_coordinator_rebalance_protocols="classic")
    assert bench.beat("a") == ErrorCode.UNSUPPORTED_VERSION


# --- records --------------------------------------------------------------------------------------


def test_records_are_those_of_apache_kafka(bench: ConsumerBench) -> None:
    """The bytes, written down from the message files of 4.1."""
    bench.beat("a", topic_names=("t",))
    by_key = {consumer_key_of(version_of(one.key), one.key): one for one in bench.log if one.value}
    group = by_key[ConsumerKey(Kind.GROUP, "g")]
    assert group.key == b"\0\3\0\1g"
    assert group.value is not None
    # Version 0, epoch 1, one tagged field: tag 0, eight bytes.
    assert group.value[:9] == b"\0\0\0\0\0\1\1\0\x08"
    member = by_key[ConsumerKey(Kind.MEMBER, "g", "a")]
    assert member.key == b"\0\5\0\1g\0\1a"
    assert member.value == b"\0\0\0\0\x02c\x01\x02\x02t\0\0\0\x4e\x20\0\0"
    target = by_key[ConsumerKey(Kind.TARGET, "g")]
    assert (target.key, target.value) == (b"\0\6\0\1g", b"\0\0\0\0\0\1\0")
    given = b"\x02" + b"." * 15 + b"t\x07" + bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2])
    given += bytes([0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]) + b"\0"
    of_member = by_key[ConsumerKey(Kind.TARGET_OF_MEMBER, "g", "a")]
    assert (of_member.key, of_member.value) == (b"\0\7\0\1g\0\1a", b"\0\0" + given + b"\0")
    current = by_key[ConsumerKey(Kind.CURRENT, "g", "a")]
    assert current.key == b"\0\x08\0\1g\0\1a"
    assert current.value == b"\0\0\0\0\0\1\0\0\0\0\0" + given + b"\1\0"


def test_records_of_earlier_releases_are_left_alone(bench: ConsumerBench) -> None:
    bench.beat("a")
    before = bench.described()
    for group in (b"x", b"g"):
        bench.core.replay(b"\0\4\0\1" + group, b"\0\0whatever")
        bench.core.replay(b"\0\4\0\1" + group, None)
    assert bench.described("x") == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.described() == before
    with pytest.raises(ValueError, match="GROUP of version 9"):
        value_of(Kind.GROUP, b"\0\x09")


@pytest.mark.req("G4")
def test_a_member_that_missed_an_answer_is_told_again() -> None:
    bench = ConsumerBench()
    one, other = Consumer(bench, "m0"), Consumer(bench, "m1")
    one.beat()
    assert len(one.told) == 6
    other.beat()
    lost = bench.beat("m0", one.epoch, owned=())
    assert lost["member_epoch"] == one.epoch + 1
    told = one.beat()
    assert told["member_epoch"] == lost["member_epoch"]
    assert told["assignment"] == lost["assignment"]
    assert len(one.told) == 3
