"""Fetch sessions (KIP-227): what is told in each round, who is refused, who makes room."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.apis.handler import fetch_sessions
from broker.apis.handler.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    FIRST_EPOCH,
    FetchSessions,
    Reader,
    SessionRequest,
    Wanted,
)
from broker.protocol.versions import SERVED, ApiKey
from broker.replication.partition import Partition
from broker.types import EpochEndOffset, FetchPartition, FetchResult, TopicPartition
from broker.types import FetchKey as Key
from raftctl.errors import ErrorCode
from tests.unit.broker.apis.asking import TOPIC_ID, ask
from tests.unit.broker.server.fakes import FakeBroker, batch, fetch_message, produce_message

pytestmark = pytest.mark.req("R10")
WANTED = Wanted(-1, 0, -1, -1, 100)
NOTHING = FetchResult(ErrorCode.NONE, 5, 5, 0)
RECORDS = NOTHING._replace(records=[b"records"])


def keys(count: int) -> list[Key]:
    return [Key("t", partition) for partition in range(count)]


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, random.Random(1))


def request(
    wanted: list[Key], session_id: int = 0, epoch: int = FIRST_EPOCH, **fields: Any
) -> SessionRequest:
    values: dict[str, Any] = {"by_topic_id": False, "is_follower": False, **fields}
    return SessionRequest(session_id, epoch, wanted=dict.fromkeys(wanted, WANTED), **values)


def opened(known: FetchSessions, count: int = 3, now_ms: int = 0, **fields: Any) -> int:
    """A new session whose client has been told `NOTHING` of each partition; 0 if there is none."""
    turn = known.begin(request(keys(count), **fields), now_ms)
    known.invariants()
    assert turn.answer([NOTHING] * count) == (0, [(key, NOTHING) for key in keys(count)])
    return turn.session_id


@pytest.mark.req("S5")
def test_what_is_withheld_from_a_throttled_client_comes_in_its_next_round() -> None:
    known = sessions()
    session_id = opened(known)
    turn = known.begin(request([], session_id, 1), 1)
    assert known.withhold(turn) == (0, session_id)
    turn = known.begin(request([], session_id, 2), 2)
    assert [key for key, _ in turn.partitions] == keys(3)
    results = [RECORDS, NOTHING, NOTHING._replace(high_watermark=9)]
    assert turn.answer(results) == (0, [(Key("t", 0), RECORDS), (Key("t", 2), results[2])])


@pytest.mark.req("S5")
def test_a_throttled_client_that_has_seen_nothing_of_its_session_has_none() -> None:
    known = sessions()
    turn = known.begin(request(keys(3)), 0)
    assert known.withhold(turn) == (0, 0)
    assert len(known) == 0
    known.invariants()
    # Without a session there is nothing to end.
    assert known.withhold(known.begin(request(keys(3), epoch=FINAL_EPOCH), 1)) == (0, 0)
    # A client that went on without the answer is out of step, as in any other round.
    session_id = opened(known)
    late = known.begin(request([], session_id, 1), 2)
    known.begin(request([], session_id, 2), 3)
    assert known.withhold(late) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)


def test_a_round_tells_only_what_is_news() -> None:
    known = sessions()
    session_id = opened(known)
    turn = known.begin(request([], session_id, 1), 0)
    assert [key for key, _ in turn.partitions] == keys(3)
    higher = NOTHING._replace(high_watermark=6)
    assert turn.answer([NOTHING, higher, NOTHING]) == (0, [(Key("t", 1), higher)])
    for news in (
        RECORDS,
        NOTHING._replace(log_start_offset=1),
        NOTHING._replace(log_start_offset=1, diverging=EpochEndOffset(1, 2)),
        NOTHING._replace(log_start_offset=1, preferred_read_replica=2),
    ):
        turn = known.begin(request([], session_id, turn.epoch), 0)
        results = {Key("t", 0): news, Key("t", 1): higher, Key("t", 2): NOTHING}
        _, told = turn.answer([results[key] for key, _ in turn.partitions])
        assert told == [(Key("t", 0), news)]


def test_the_end_of_an_error_is_news() -> None:
    known = sessions()
    session_id = opened(known, 1)
    failed = FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = []
    for epoch, result in enumerate([failed, failed, NOTHING, NOTHING], start=1):
        told.append(known.begin(request([], session_id, epoch), 0).answer([result])[1])
    key = Key("t", 0)
    assert told == [[(key, failed)], [(key, failed)], [(key, NOTHING)], []]


def test_a_client_changes_adds_and_forgets_partitions() -> None:
    known = sessions()
    session_id = opened(known)
    moved = request([], session_id, 1, forgotten=[Key("t", 0), Key("no", 9)])._replace(
        wanted={Key("t", 1): WANTED._replace(fetch_offset=7), Key("u", 0): WANTED}
    )
    turn = known.begin(moved, 0)
    known.invariants()
    assert dict(turn.partitions) == {
        Key("t", 1): WANTED._replace(fetch_offset=7),
        Key("t", 2): WANTED,
        Key("u", 0): WANTED,
    }
    turn.answer([NOTHING] * 3)
    gone = known.begin(request([], session_id, 2, forgotten=[*keys(3), Key("u", 0)]), 0)
    assert (gone.partitions, gone.session_id, len(known)) == ((), 0, 0)


def test_who_had_records_is_read_last_so_that_none_starves() -> None:
    known = sessions()
    session_id = opened(known)
    served = []
    for epoch in range(1, 7):
        turn = known.begin(request([], session_id, epoch), 0)
        served.append(turn.partitions[0][0])
        turn.answer([RECORDS, NOTHING, NOTHING])
    assert served == [*keys(3), *keys(3)]


def test_without_a_session_each_partition_is_read_first_at_times() -> None:
    known = sessions()
    firsts = {known.begin(request(keys(3), epoch=FINAL_EPOCH), 0).first for _ in range(50)}
    assert firsts == {0, 1, 2}


def test_who_is_out_of_step_is_refused_and_begins_anew() -> None:
    known = sessions()
    session_id = opened(known)
    for epoch in (2, 7, -7):
        refused = known.begin(request([], session_id, epoch), 0)
        assert refused.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = known.begin(request([], session_id + 1, 1), 0)
    assert unknown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_id = known.begin(request([], session_id, 1, by_topic_id=True), 0)
    assert by_id.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert refused.partitions == unknown.partitions == by_id.partitions == ()
    again = known.begin(request(keys(1), session_id), 0)
    assert again.session_id not in (0, session_id)
    assert len(known) == 1


def test_an_answer_that_the_client_did_not_wait_for_is_refused() -> None:
    known = sessions()
    session_id = opened(known, 1)
    late = known.begin(request([], session_id, 1), 0)
    known.begin(request([], session_id, 2), 0)
    assert late.dirty is not None
    late.dirty.mark_idle(unused_place(Key("t", 0)), wanted_of(Key("t", 0)), None)
    assert late.answer([RECORDS]) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    assert list(late.dirty) == keys(1), "nobody was told of it"


def test_another_way_of_reading_begins_with_all_partitions() -> None:
    known = sessions()
    session_id = opened(known)
    dirty = known.begin(request([], session_id, 1), 0).dirty
    assert dirty is not None
    for key in keys(3):
        dirty.mark_idle(unused_place(key), wanted_of(key), None)
    assert known.begin(request([], session_id, 2), 0).partitions == []
    committed = Reader(isolation_level=1)
    turn = known.begin(request([], session_id, 3, reader=committed), 0)
    assert [key for key, _ in turn.partitions] == keys(3)


def test_the_final_epoch_ends_a_session_and_answers_all() -> None:
    known = sessions()
    session_id = opened(known)
    turn = known.begin(request(keys(2), session_id, FINAL_EPOCH), 0)
    assert turn.answer([NOTHING] * 2)[1] == [(key, NOTHING) for key in keys(2)]
    assert (turn.session_id, len(known)) == (0, 0)


def test_epochs_begin_again_after_the_largest() -> None:
    known = sessions()
    session_id = opened(known, 1)
    known._sessions[session_id].epoch = 2**31 - 1
    assert known.begin(request([], session_id, 2**31 - 1), 0).epoch == 1
    assert known.begin(request([], session_id, 1), 0).epoch == 2


def test_the_cache_is_bounded_and_who_ranks_higher_makes_room() -> None:
    known = sessions(slots=2)
    small, large = opened(known, 2), opened(known, 4)
    assert opened(known, 9) == 0
    follower = opened(known, 1, is_follower=True)
    assert list(known._sessions) == [large, follower]
    assert opened(known, 3, now_ms=EVICTION_MS) == 0
    later = EVICTION_MS + 1
    for session_id in (large, follower):
        assert known.begin(request([], session_id, 1), later - 1).error is ErrorCode.NONE
    assert opened(known, 4, now_ms=later) == 0
    larger = opened(known, 5, now_ms=later)
    assert list(known._sessions) == [follower, larger]
    assert small not in known._sessions
    idle = opened(known, 1, now_ms=3 * EVICTION_MS)
    assert list(known._sessions) == [larger, idle]
    assert opened(sessions(slots=0), 1) == 0


def test_a_session_that_is_used_is_the_newest() -> None:
    known = sessions()
    first, second = opened(known), opened(known, now_ms=1)
    assert known.begin(request([], first, 1), 2).error is ErrorCode.NONE
    known.invariants()
    assert list(known._sessions) == [second, first]


def test_all_sessions_together_have_a_bounded_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 5)
    known = sessions()
    session_id = opened(known, 3)
    assert opened(known, 3) == 0
    grown = known.begin(request([Key("u", p) for p in range(3)], session_id, 1), 0)
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(known, 5) != 0


def unused_place(key: Key) -> Partition:
    """A partition where a reader can rest, and nothing else."""
    nothing: Any = None
    return Partition(wanted_of(key).partition, UUID(int=1), nothing, nothing, nothing)


def wanted_of(key: Key) -> FetchPartition:
    return FetchPartition(TopicPartition(str(key.topic), key.partition), None, *WANTED)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.integers(0, 4)),
        st.tuples(st.just("forget"), st.integers(0, 4)),
        st.tuples(st.just("change"), st.integers(0, 4)),
        st.tuples(st.just("fail"), st.integers(0, 4)),
        st.tuples(st.just("fetch"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_a_client_with_a_session_knows_what_one_without_would(steps: list[tuple[str, int]]) -> None:
    known = sessions()
    truth = dict.fromkeys(keys(5), NOTHING)
    wants, session_id, epoch = {Key("t", 0)}, 0, FIRST_EPOCH
    sent, seen = set[Key](), dict[Key, FetchResult]()
    places = {key: unused_place(key) for key in truth}
    for step, partition in [*steps, ("fetch", 0)]:
        key = Key("t", partition)
        if step == "want":
            wants.add(key)
        elif step == "forget" and len(wants) > 1:
            wants.discard(key)
        elif step == "change":
            truth[key] = NOTHING._replace(high_watermark=max(truth[key].high_watermark, 0) + 1)
        elif step == "fail":
            truth[key] = FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if step in ("change", "fail"):
            places[key].mark_dirty()
        elif step == "fetch":
            gone = sorted(sent - wants)
            asked = request(sorted(wants - sent), session_id, epoch, forgotten=gone)
            turn = known.begin(asked, 0)
            known.invariants()
            results = {key: truth[key] for key, _ in turn.partitions}
            for key, result in results.items():
                if not result.error and turn.dirty is not None:
                    turn.dirty.mark_idle(places[key], wanted_of(key), None)
            assert not set(turn.dirty or ()) & {k for k, r in results.items() if not r.error}
            error, told = turn.answer(list(results.values()))
            assert error is ErrorCode.NONE
            seen = {k: r for k, r in seen.items() if k in wants} | dict(told)
            sent, session_id, epoch = set(wants), turn.session_id, turn.epoch
            assert seen == {key: truth[key] for key in wants}


@pytest.mark.parametrize("version", [v for v in SERVED[ApiKey.FETCH] if v >= 7])
async def test_sessions_on_the_wire(broker: FakeBroker, version: int) -> None:
    def message(session_id: int, epoch: int, *offsets: int) -> dict[str, Any]:
        whole = fetch_message("t", session_id=session_id, session_epoch=epoch)
        (topic,), topics = whole["topics"], []
        for offset in offsets:
            partitions = [{**topic["partitions"][0], "fetch_offset": offset}]
            topics.append({"topic": "t", "topic_id": TOPIC_ID, "partitions": partitions})
        return {**whole, "topics": topics}

    first = await ask(broker, 1, version, message(0, 0, 0))
    session_id = first["session_id"]
    assert len(first["responses"]) == 1
    nothing = await ask(broker, 1, version, message(session_id, 1))
    assert (nothing["session_id"], nothing["responses"]) == (session_id, [])
    await ask(broker, 0, 9, produce_message("t", batch(3, b"abc")))
    (topic,) = (await ask(broker, 1, version, message(session_id, 2)))["responses"]
    assert bytes(topic["partitions"][0]["records"]) == batch(3, b"abc")
    nothing = await ask(broker, 1, version, message(session_id, 3, 3))
    assert nothing["responses"] == []
    lost = await ask(broker, 1, version, message(session_id, 3))
    assert (lost["error_code"], lost["session_id"]) == (71, 0)
    other = 12 if version >= 13 else 13
    wrong = await ask(broker, 1, other, message(session_id, 4))
    assert wrong["error_code"] == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    unknown = await ask(broker, 1, version, message(session_id ^ 1, 1))
    assert (unknown["error_code"], unknown["responses"]) == (70, [])


async def test_a_session_hears_of_a_topic_id_that_is_unknown_and_of_its_end(
    broker: FakeBroker,
) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}
    topics = [{"topic_id": UUID(int=9), "partitions": [partition]}]
    first = await ask(broker, 1, 13, fetch_message("t", topics=topics, session_epoch=0))
    again = fetch_message("t", topics=[], session_id=first["session_id"], session_epoch=1)
    (topic,) = (await ask(broker, 1, 13, again))["responses"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    forgotten = [{"topic_id": UUID(int=9), "partitions": [0]}]
    over = {**again, "session_epoch": 2, "forgotten_topics_data": forgotten}
    ended = await ask(broker, 1, 13, over)
    assert (ended["session_id"], ended["responses"]) == (0, [])
