"""Consumer groups of the classic protocol, as the protocol's documents say (rows G2, G3)."""

from __future__ import annotations

import pytest

from broker.groups import CommittedOffset
from broker.groups import _records as group_records
from broker.groups._records import OffsetKey, offset_of, offset_record
from broker.groups.requests import (
    Caller,
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    ForgetTopics,
    Heartbeat,
    Leave,
    Sync,
)
from broker.types import TopicPartition
from raftctl.errors import ErrorCode
from tests.unit.broker.groups.group_harness import P0, Bench

DAY_MS = 86_400_000


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- joining --------------------------------------------------------------------------------------


@pytest.mark.req("G2")
def test_the_first_member_leads_and_assigns(bench: Bench) -> None:
    first = bench.ask(bench.join())
    assert (first["leader"], first["generation_id"]) == (first["member_id"], 1)
    assert first["protocol_name"] == "range"
    assert [one["member_id"] for one in first["members"]] == [first["member_id"]]
    assert bench.state() == "CompletingRebalance"
    synced = bench.ask(bench.sync(first["member_id"], 1, {first["member_id"]: b"all"}))
    assert synced["assignment"] == b"all"
    assert bench.state() == "Stable"


@pytest.mark.req("G2")
def test_the_first_member_waits_for_others() -> None:
    bench = Bench(group_initial_rebalance_delay_ms="3000")
    first = bench.begin(bench.join())
    bench.sleep(2_000)
    second = bench.begin(bench.join())
    bench.sleep(2_000)
    # Somebody came, so that another delay has begun.
    assert bench.told == {}
    bench.sleep(2_000)
    assert bench.told[first]["generation_id"] == bench.told[second]["generation_id"] == 1
    assert len(bench.told[first]["members"]) == 2
    assert bench.told[second]["members"] == []


@pytest.mark.req("G2")
def test_members_that_come_together_wait_for_one_delay() -> None:
    bench = Bench(group_initial_rebalance_delay_ms="3000")
    first = bench.begin(bench.join())
    bench.sleep(100)
    bench.begin(bench.join())
    bench.sleep(2_900)
    assert bench.told == {}
    bench.sleep(200)
    assert len(bench.told[first]["members"]) == 2


@pytest.mark.req("G2")
def test_the_first_member_waits_no_longer_than_for_a_rebalance() -> None:
    bench = Bench(group_initial_rebalance_delay_ms="3000")
    first = bench.begin(bench.join(rebalance_timeout_ms=10_000))
    for _ in range(4):
        bench.sleep(2_400)
        bench.begin(bench.join())
    assert bench.told == {}
    bench.sleep(500)
    assert len(bench.told[first]["members"]) == 5


@pytest.mark.req("G2")
def test_a_new_member_is_first_told_its_id(bench: Bench) -> None:
    """KIP-394."""
    told = bench.told[bench.begin(bench.join(needs_member_id=True))]
    assert told["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    joined = bench.ask(bench.join(told["member_id"], needs_member_id=True))
    assert joined["member_id"] == told["member_id"]
    # Who does not come back with it is forgotten.
    told = bench.told[bench.begin(bench.join(needs_member_id=True))]
    bench.sleep(10_000)
    assert bench.ask(bench.join(told["member_id"])) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.req("G2")
def test_all_join_again_when_one_comes(bench: Bench) -> None:
    first, second = bench.two_members()
    third = bench.begin(bench.join())
    assert bench.heartbeat(first, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.ask(bench.sync(first, 2)) == ErrorCode.REBALANCE_IN_PROGRESS
    request_ids = [bench.begin(bench.join(first)), bench.begin(bench.join(second)), third]
    assert [bench.told[one]["generation_id"] for one in request_ids] == [3, 3, 3]
    assert bench.heartbeat(first, 2) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.req("G2")
def test_who_does_not_join_in_time_is_out(bench: Bench) -> None:
    first, second = bench.two_members()
    request_id = bench.begin(bench.join(second, protocols=(("sticky", b"new"),)))
    bench.sleep(9_000)
    assert bench.heartbeat(first, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert request_id not in bench.told
    for _ in range(10):
        bench.sleep(5_100)
        bench.heartbeat(first, 2)
    assert bench.told[request_id]["generation_id"] == 3
    assert bench.told[request_id]["leader"] == second
    assert bench.heartbeat(first, 2) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.req("G2")
def test_who_is_silent_for_a_session_is_out(bench: Bench) -> None:
    first, second = bench.two_members()
    bench.sleep(9_000)
    assert bench.heartbeat(second, 2) == ErrorCode.NONE
    bench.sleep(2_000)
    assert bench.heartbeat(first, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(second, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.ask(bench.join(second))["leader"] == second


@pytest.mark.req("G2")
def test_who_never_asks_for_its_assignment_is_out(bench: Bench) -> None:
    first = bench.ask(bench.join(rebalance_timeout_ms=5_000))["member_id"]
    bench.sleep(5_000)
    assert bench.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "Empty"


@pytest.mark.req("G2")
def test_the_protocol_with_most_votes_is_taken(bench: Bench) -> None:
    first = bench.ask(bench.join())["member_id"]
    likes = (("sticky", b"x"), ("range", b"y"))
    request_ids = [bench.begin(bench.join(protocols=likes)) for _ in range(2)]
    assert bench.ask(bench.join(first))["protocol_name"] == "sticky"
    assert {bench.told[one]["protocol_name"] for one in request_ids} == {"sticky"}
    other = bench.join(protocols=(("none of these", b""),))
    assert bench.ask(other) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.req("G2")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i", "member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_who_may_not_join_changes_nothing(changes: dict[str, object], error: ErrorCode) -> None:
    full = error is ErrorCode.GROUP_MAX_SIZE_REACHED
    bench = Bench(group_max_size="2" if full else "3")
    bench.two_members()
    before = (bench.ask(DescribeGroup("g")), list(bench.log))
    member_id = str(changes.pop("member_id", ""))
    assert bench.ask(bench.join(member_id, **changes)) == error
    assert (bench.ask(DescribeGroup("g")), bench.log) == before


@pytest.mark.req("G2")
def test_a_refused_assignment_begins_anew(bench: Bench) -> None:
    first = bench.ask(bench.join())["member_id"]
    bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.ask(bench.sync(first, 1)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuse = None
    assert bench.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.ask(bench.join(first))["generation_id"] == 2


# --- leaving --------------------------------------------------------------------------------------


@pytest.mark.req("G2")
def test_members_leave_each_on_its_own(bench: Bench) -> None:
    first, second = bench.two_members()
    answer = bench.ask(Leave("g", (Caller(first), Caller("unknown"))))
    assert [one["error_code"] for one in answer["members"]] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.heartbeat(second, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.ask(Leave("g", (Caller(second),)))
    assert bench.state() == "Empty"


# --- static members -------------------------------------------------------------------------------


@pytest.mark.req("G2")
def test_a_static_member_keeps_its_place_and_fences_its_former_self(bench: Bench) -> None:
    """KIP-345."""
    first = bench.ask(bench.join(instance_id="i"))["member_id"]
    bench.ask(bench.sync(first, 1, {first: b"mine"}))
    again = bench.ask(bench.join(instance_id="i"))
    assert (again["generation_id"], again["skip_assignment"]) == (1, True)
    assert again["member_id"] != first
    assert bench.ask(bench.sync(again["member_id"], 1))["assignment"] == b"mine"
    fenced = bench.join(first, instance_id="i")
    assert bench.ask(fenced) == ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    bench.fail_over()
    assert bench.heartbeat(again["member_id"], 1) == ErrorCode.NONE


@pytest.mark.req("G2", "G3")
def test_whoever_was_replaced_is_told_so_and_changes_nothing(bench: Bench) -> None:
    """Each request names the instance; the member that it had is another's now."""
    first = bench.ask(bench.join(instance_id="i"))["member_id"]
    bench.ask(bench.sync(first, 1, {first: b"mine"}))
    again = bench.ask(bench.join(instance_id="i"))["member_id"]
    before = (bench.ask(DescribeGroup("g")), list(bench.log))
    replaced = Caller(first, "i", 1)
    committed = CommittedOffset(5, -1, "", bench.now.wall_ms)
    for request in (
        Heartbeat("g", replaced, bench.topics),
        Sync("g", replaced, "consumer", "range", ()),
        Commit("g", replaced, ((P0, committed),)),
    ):
        assert bench.ask(request) == ErrorCode.FENCED_INSTANCE_ID
    (left,) = bench.ask(Leave("g", (replaced,)))["members"]
    assert left["error_code"] == ErrorCode.FENCED_INSTANCE_ID
    assert (bench.ask(DescribeGroup("g")), bench.log) == before
    assert bench.heartbeat(again, 1) == ErrorCode.NONE


@pytest.mark.req("G2")
def test_an_older_client_that_is_back_does_not_take_itself_for_the_leader(bench: Bench) -> None:
    first = bench.ask(bench.join(instance_id="i"))["member_id"]
    bench.ask(bench.sync(first, 1, {first: b"mine"}))
    again = bench.ask(bench.join(instance_id="i", may_skip_assignment=False))
    assert (again["leader"], again["members"]) == (first, [])


@pytest.mark.req("G2")
def test_a_static_member_whose_return_is_not_written_is_not_back(bench: Bench) -> None:
    first = bench.ask(bench.join(instance_id="i"))["member_id"]
    bench.ask(bench.sync(first, 1, {first: b"mine"}))
    bench.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.ask(bench.join(instance_id="i")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuse = None
    assert bench.heartbeat(first, 1) == ErrorCode.NONE


# --- fail-over ------------------------------------------------------------------------------------


@pytest.mark.req("G1", "G2")
def test_the_next_coordinator_knows_the_generation(bench: Bench) -> None:
    first, second = bench.two_members()
    bench.fail_over()
    assert bench.heartbeat(second, 2) == ErrorCode.NONE
    assert bench.ask(bench.sync(first, 2))["assignment"] == b"a"
    bench.sleep(9_000)
    assert bench.heartbeat(first, 2) == ErrorCode.NONE
    bench.sleep(2_000)
    assert bench.heartbeat(first, 2) == ErrorCode.REBALANCE_IN_PROGRESS


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.req("G3")
def test_offsets_of_members_and_of_those_who_are_none(bench: Bench) -> None:
    assert bench.commit("", -1, 5, group="alone") == ErrorCode.NONE
    first, _ = bench.two_members()
    assert bench.commit(first, 2, 7, "note") == ErrorCode.NONE
    bench.fail_over()
    assert (bench.committed("alone"), bench.committed()) == (5, 7)
    (found,) = bench.ask(FetchOffsets("g", None)).values()
    assert (found.metadata, found.leader_epoch) == ("note", 3)
    assert bench.committed("nobody") is None


PRODUCER = (70, 1)


@pytest.mark.req("T4")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_offsets_of_a_transaction_count_when_it_is_committed(bench: Bench, elsewhere: bool) -> None:
    assert bench.commit("", -1, 5) == ErrorCode.NONE
    for commit, expected in ((False, 5), (True, 7)):
        assert bench.commit("", -1, 7, producer=PRODUCER) == ErrorCode.NONE
        if elsewhere:
            bench.fail_over()
        assert bench.committed() == 5
        assert bench.committed(stable=True) == "unstable"
        bench.end(PRODUCER[0], commit=commit)
        if elsewhere:
            bench.fail_over()
        assert bench.committed(stable=True) == expected


@pytest.mark.req("T4")
def test_offsets_of_a_transaction_do_not_replace_later_ones(bench: Bench) -> None:
    bench.commit("", -1, 7, producer=PRODUCER)
    assert bench.committed(stable=True) == "unstable"
    bench.commit("", -1, 9)
    bench.end(PRODUCER[0], commit=True)
    assert bench.committed() == 9
    bench.fail_over()
    assert bench.committed() == 9


@pytest.mark.req("T4")
def test_a_transaction_commits_for_the_member_that_its_producer_names(bench: Bench) -> None:
    first, _ = bench.two_members()
    assert bench.commit(first, 1, 3, producer=PRODUCER) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit("stranger", 2, 3, producer=PRODUCER) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit(first, 2, 3, producer=PRODUCER) == ErrorCode.NONE
    # Producers of older versions name none.
    assert bench.commit("", -1, 4, producer=PRODUCER) == ErrorCode.NONE
    bench.end(PRODUCER[0], commit=True)
    assert bench.committed() == 4
    assert bench.commit("", -1, 5, group="new", producer=PRODUCER) == ErrorCode.NONE
    bench.end(PRODUCER[0], commit=True)
    assert bench.committed("new") == 5


@pytest.mark.req("G3")
def test_commits_that_are_refused_change_nothing(bench: Bench) -> None:
    first, _ = bench.two_members()
    assert bench.commit(first, 2, 7) == ErrorCode.NONE
    assert bench.commit(first, 1, 8) == ErrorCode.ILLEGAL_GENERATION
    assert bench.commit("unknown", 2, 8) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit("", -1, 8) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit("x", 3, 8, group="other") == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.commit(first, 2, 8, "m" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    bench.refuse = ErrorCode.MESSAGE_TOO_LARGE
    assert bench.commit(first, 2, 8) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    bench.refuse = None
    assert bench.committed() == 7
    assert bench.ask(DescribeGroup("other")) is None


@pytest.mark.req("G3")
@pytest.mark.parametrize(
    ("records_max", "refuse"),
    [(9, None), (1, None), (0, None), (9, ErrorCode.COORDINATOR_NOT_AVAILABLE)],
)
def test_commits_handled_together_are_told_what_each_would_be(
    records_max: int, refuse: ErrorCode | None
) -> None:
    one_by_one, together = Bench(), Bench()
    members = {bench.two_members()[0] for bench in (one_by_one, together)}
    (first,) = members
    callers = {"g": (first, 2), "alone": ("", -1), "absent": ("x", 3)}
    commits = [
        Commit(group, Caller(member, None, generation), ((P0, CommittedOffset(7, 0, note, 1)),))
        for note in ("", "m" * 4_097)
        for group, (member, generation) in callers.items()
    ]
    for bench in (one_by_one, together):
        bench.records_max, bench.refuse = records_max, refuse
    assert together.begin_all(commits) == [one_by_one.told[one_by_one.begin(c)] for c in commits]
    assert together.log == one_by_one.log
    for group in callers:
        assert together.committed(group) == one_by_one.committed(group)
        asked = DescribeGroup(group)
        assert together.ask(asked) == one_by_one.ask(asked)


@pytest.mark.req("G3")
def test_a_commit_counts_as_a_heartbeat_but_not_between_join_and_sync(bench: Bench) -> None:
    first, second = bench.two_members()
    bench.sleep(9_000)
    assert bench.commit(first, 2, 1) == bench.heartbeat(second, 2) == ErrorCode.NONE
    bench.sleep(9_000)
    assert bench.commit(first, 2, 2) == bench.heartbeat(second, 2) == ErrorCode.NONE
    request_ids = [bench.begin(bench.join(first)), bench.begin(bench.join(second))]
    assert [bench.told[one]["generation_id"] for one in request_ids] == [3, 3]
    assert bench.commit(first, 3, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    # A producer of a transaction does not know that error.
    assert bench.commit(first, 3, 3, producer=(7, 0)) == ErrorCode.NONE
    bench.end(7, commit=True)
    assert bench.committed() == 3


@pytest.mark.req("G3")
def test_offsets_of_an_empty_group_expire(bench: Bench) -> None:
    first = bench.ask(bench.join())["member_id"]
    bench.ask(bench.sync(first, 1))
    bench.commit(first, 1, 7)
    bench.commit("", -1, 7, group="alone")
    for _ in range(3 * 24 * 60):
        bench.sleep(60_000 // 8)
        bench.heartbeat(first, 1)
    bench.ask(Leave("g", (Caller(first),)))
    bench.sleep(7 * DAY_MS - 1_000_000)
    assert bench.committed() == 7
    assert bench.committed("alone") is None
    bench.sleep(2_000_000)
    assert bench.committed() is None
    assert bench.state() is None
    assert [one.value for one in bench.log[-2:]] == [None, None]
    bench.fail_over()
    assert bench.listed() == []


@pytest.mark.req("G3")
def test_an_offset_with_a_time_of_its_own_expires_then(bench: Bench) -> None:
    wall_ms = bench.now.wall_ms
    committed = CommittedOffset(5, -1, "", wall_ms, wall_ms + 1_000_000)
    assert bench.ask(Commit("g", Caller("", None, -1), ((P0, committed),))) == {P0: 0}
    bench.sleep(900_000)
    bench.fail_over()
    assert bench.committed() == 5
    bench.sleep(1_000_000)
    assert bench.committed() is None


@pytest.mark.req("G3")
def test_offsets_of_topics_that_are_read_are_not_deleted(bench: Bench) -> None:
    other = TopicPartition("other", 0)
    first, second = bench.two_members()
    committed = CommittedOffset(5, -1, "", bench.now.wall_ms)
    bench.ask(Commit("g", Caller(first, None, 2), ((P0, committed), (other, committed))))
    found = bench.ask(DeleteOffsets("g", (P0, other)))
    assert found == {P0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: ErrorCode.NONE}
    assert list(bench.ask(FetchOffsets("g", None))) == [P0]
    assert bench.ask(DeleteGroup("g")) == ErrorCode.NON_EMPTY_GROUP
    bench.ask(Leave("g", (Caller(first), Caller(second))))
    assert bench.ask(DeleteOffsets("g", (P0,))) == {P0: ErrorCode.NONE}
    bench.ask(DeleteGroup("g"))
    assert bench.ask(DeleteGroup("g")) == ErrorCode.GROUP_ID_NOT_FOUND
    bench.fail_over()
    assert bench.state() is None


@pytest.mark.req("G3")
def test_offsets_of_deleted_topics_go(bench: Bench) -> None:
    bench.commit("", -1, 5)
    bench.ask(ForgetTopics(frozenset({"other"})))
    assert bench.committed() == 5
    bench.ask(ForgetTopics(frozenset({"t"})))
    assert bench.committed() is None
    # Whoever looks for the group sees that it is empty, until expiry finds it.
    assert bench.state() == "Empty"
    bench.sleep(11 * 60_000)
    assert bench.state() is None
    assert bench.log[-1][1] is None


@pytest.mark.req("G2")
def test_groups_are_listed_by_state_and_type(bench: Bench) -> None:
    bench.two_members()
    bench.commit("", -1, 5, group="alone")

    def listed(states: set[str], types: set[str]) -> list[str]:
        found = bench.listed(states, types)
        return [one["group_id"] for one in found]

    assert sorted(listed(set(), set())) == ["alone", "g"]
    assert listed({"stable"}, {"classic"}) == ["g"]
    assert listed({"empty"}, set()) == ["alone"]
    assert listed(set(), {"consumer"}) == []


# --- records --------------------------------------------------------------------------------------


@pytest.mark.req("G3")
def test_records_are_apache_kafkas() -> None:
    record = offset_record(OffsetKey("g", "t", 1), CommittedOffset(5, 2, "m", 3))
    assert record.key == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\1"
    numbers = (5).to_bytes(8, "big") + (2).to_bytes(4, "big")
    assert record.value == b"\0\3" + numbers + b"\0\1m" + (3).to_bytes(8, "big")
    group = group_records.group_record("g", None)
    assert group == (b"\0\2\0\1g", None)


@pytest.mark.req("G3")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\0\0" + bytes(7) + b"\5" + b"\0\1m" + bytes(7) + b"\3", (5, -1, "m", 3, -1)),
        (b"\0\1" + bytes(7) + b"\5" + b"\0\0" + bytes(15) + b"\3", (5, -1, "", 0, 3)),
        (b"\0\4" + bytes(7) + b"\5" + bytes(4) + b"\1" + bytes(8) + b"\0", (5, 0, "", 0, -1)),
    ],
)
def test_offsets_of_other_versions_are_read(value: bytes, expected: tuple[object, ...]) -> None:
    found = offset_of(value)
    assert (
        found.offset,
        found.leader_epoch,
        found.metadata,
        found.commit_timestamp,
        found.expire_timestamp,
    ) == expected


def test_a_record_that_is_cut_short_is_refused() -> None:
    key, value = offset_record(OffsetKey("g", "topic", 1), CommittedOffset(5, 2, "meta", 3))
    assert group_records.key_of(key) == OffsetKey("g", "topic", 1)
    assert value is not None
    assert offset_of(value) == CommittedOffset(5, 2, "meta", 3)
    for size in range(len(key)):
        with pytest.raises(ValueError, match=r"OffsetCommitKey|version"):
            group_records.key_of(key[:size])
    for size in range(len(value)):
        with pytest.raises(ValueError, match=r"OffsetCommitValue|version"):
            offset_of(value[:size])
