"""Rights to records: what a Produce or Fetch without one still does, and sessions of principals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.apis.handler import HangUpError
from broker.protocol.versions import ApiKey
from broker.types import FetchKey, FetchResult
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from raftctl.metadata.records import AccessControlEntryRecord
from raftctl.security import Action, Principal
from tests.unit.broker.apis.asking import TOPIC_ID, ask
from tests.unit.broker.apis.test_api_rights import U_ID, authorize, produce
from tests.unit.broker.apis.test_fetch_sessions import unused_place, wanted_of
from tests.unit.broker.server.fakes import fetch_message, publish, topic_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.types import FetchParams, FetchPartition
    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("S4")
READ_T = Action(Operation.READ, ResourceType.TOPIC, "t")
WRITE_T = Action(Operation.WRITE, ResourceType.TOPIC, "t")
FOLLOW = Action(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
A_RULE = AccessControlEntryRecord(
    UUID(int=1),
    ResourceType.TOPIC,
    "t",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    Permission.DENY,
)
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


@pytest.fixture
def broker(broker: FakeBroker) -> FakeBroker:
    """With a second topic, `u`."""
    publish(broker.metadata, topic_records("u", U_ID, 2))
    return broker


# --- Produce --------------------------------------------------------------------------------------


async def test_records_that_may_not_be_written_are_neither_looked_at_nor_appended(
    broker: FakeBroker,
) -> None:
    seen: list[int] = []
    prepare = broker.context.prepare

    def noted(entries: Sequence[tuple[Any, Any]]) -> Any:
        seen.extend(len(records) for partition, records in entries if partition.topic == "t")
        return prepare(entries)

    broker.context = replace(broker.context, prepare=noted)
    authorize(broker, WRITE_T)
    answer = await ask(broker, ApiKey.PRODUCE, 9, produce())
    codes = {
        one["name"]: [p["error_code"] for p in one["partition_responses"]]
        for one in answer["responses"]
    }
    assert codes == {"t": [REFUSED] * 2, "u": [ErrorCode.NONE] * 2}
    assert seen == [0, 0]
    assert {partition.topic for partition in broker.replicas.logs} == {"u"}


async def test_a_produce_without_acks_appends_what_it_may_and_closes_the_connection(
    broker: FakeBroker,
) -> None:
    authorize(broker, WRITE_T)
    with pytest.raises(HangUpError, match="TOPIC_AUTHORIZATION_FAILED"):
        await ask(broker, ApiKey.PRODUCE, 9, produce() | {"acks": 0})
    assert {partition.topic for partition in broker.replicas.logs} == {"u"}


async def test_acks_that_do_not_exist_show_where_writing_is_allowed(broker: FakeBroker) -> None:
    authorize(broker, WRITE_T)
    answer = await ask(broker, ApiKey.PRODUCE, 9, produce() | {"acks": 2})
    codes = [one["partition_responses"][0]["error_code"] for one in answer["responses"]]
    assert codes == [REFUSED, ErrorCode.INVALID_REQUIRED_ACKS]
    assert not broker.replicas.logs


async def test_a_transactional_id_is_needed_for_records_of_a_transaction_alone(
    broker: FakeBroker,
) -> None:
    authorize(broker, Action(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"))
    answer = await ask(broker, ApiKey.PRODUCE, 9, produce(transactional_id="x"))
    codes = [one["partition_responses"][0]["error_code"] for one in answer["responses"]]
    assert codes == [ErrorCode.NONE] * 2
    answer = await ask(broker, ApiKey.PRODUCE, 9, produce(16))
    (code, _) = (one["partition_responses"][0]["error_code"] for one in answer["responses"])
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# --- Fetch ----------------------------------------------------------------------------------------


def fetch(*names: str, session: tuple[int, int] = (0, -1), **fields: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": name, "partitions": [partition]} for name in names]
    session_id, epoch = session
    return fetch_message("t") | {
        "topics": topics,
        "session_id": session_id,
        "session_epoch": epoch,
        **fields,
    }


def codes(answer: dict[str, Any]) -> dict[Any, int]:
    return {
        one.get("topic") or one["topic_id"]: one["partitions"][0]["error_code"]
        for one in answer["responses"]
    }


async def test_the_id_of_a_topic_that_may_not_be_read_does_not_reveal_its_name(
    broker: FakeBroker,
) -> None:
    authorize(broker, READ_T)
    message = fetch()
    (partition,) = fetch("t")["topics"][0]["partitions"]
    message["topics"] = [{"topic_id": one, "partitions": [partition]} for one in (TOPIC_ID, U_ID)]
    answer = await ask(broker, ApiKey.FETCH, 13, message)
    assert codes(answer) == {TOPIC_ID: REFUSED, U_ID: ErrorCode.NONE}
    assert "topic" not in answer["responses"][0]
    # As of a topic that is not there.
    assert answer["responses"][0]["partitions"][0]["aborted_transactions"] == []
    assert [one.partition.topic for one in broker.replicas.fetches[-1][1]] == ["u"]


async def test_a_follower_without_the_right_is_not_seen_to_follow(broker: FakeBroker) -> None:
    authorize(broker, FOLLOW)
    opened = await ask(broker, ApiKey.FETCH, 12, fetch("t", "u", session=(0, 0), replica_id=2))
    assert codes(opened) == {"t": REFUSED, "u": REFUSED}
    assert broker.replicas.fetches == []
    # A consumer needs no right on the cluster.
    assert codes(await ask(broker, ApiKey.FETCH, 12, fetch("t"))) == {"t": ErrorCode.NONE}


def make_idle(broker: FakeBroker, session_id: int, *names: str) -> None:
    """The reader has everything of these topics: the next Fetch does not look at them."""
    dirty = broker.context.sessions._sessions[session_id].dirty
    for name in names:
        key = FetchKey(name, 0)
        dirty.mark_idle(unused_place(key), wanted_of(key), None)


async def test_a_follower_that_loses_the_right_is_refused_every_partition_of_its_session(
    broker: FakeBroker,
) -> None:
    authorize(broker)
    follows: dict[str, Any] = {"replica_id": 2}
    opened = await ask(broker, ApiKey.FETCH, 12, fetch("t", "u", session=(0, 0), **follows))
    make_idle(broker, opened["session_id"], "t")
    seen = len(broker.replicas.fetches)
    authorize(broker, FOLLOW)
    session = (opened["session_id"], 1)
    answer = await ask(broker, ApiKey.FETCH, 12, fetch(session=session, **follows))
    assert codes(answer) == {"t": REFUSED, "u": REFUSED}
    assert len(broker.replicas.fetches) == seen


async def test_a_right_that_is_taken_away_shows_at_the_next_fetch_of_a_session(
    broker: FakeBroker,
) -> None:
    authorize(broker)
    opened = await ask(broker, ApiKey.FETCH, 12, fetch("t", "u", session=(0, 0)))
    session_id = opened["session_id"]
    assert codes(opened) == {"t": ErrorCode.NONE, "u": ErrorCode.NONE}
    make_idle(broker, session_id, "t", "u")
    authorizer = authorize(broker, READ_T)
    # Nothing has come, and no rule has changed: there is nothing to ask.
    answer = await ask(broker, ApiKey.FETCH, 12, fetch(session=(session_id, 1)))
    assert (codes(answer), authorizer.asked) == ({}, [])
    publish(broker.metadata, [A_RULE])
    answer = await ask(broker, ApiKey.FETCH, 12, fetch(session=(session_id, 2)))
    assert codes(answer) == {"t": REFUSED}
    authorize(broker)
    answer = await ask(broker, ApiKey.FETCH, 12, fetch(session=(session_id, 3)))
    assert codes(answer) == {"t": ErrorCode.NONE}


async def test_records_that_come_while_a_fetch_waits_are_authorized_as_well(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorize(broker)
    opened = await ask(broker, ApiKey.FETCH, 12, fetch("t", "u", session=(0, 0)))
    make_idle(broker, opened["session_id"], "t")
    authorize(broker, READ_T)

    def grows(_params: FetchParams, asked: list[FetchPartition], _index: Any) -> list[FetchResult]:
        asked.append(wanted_of(FetchKey("t", 0)))
        return [FetchResult(ErrorCode.NONE, 5, 5, 0, [b"secret"]) for _ in asked]

    monkeypatch.setattr(broker.replicas, "fetch", grows)
    session = (opened["session_id"], 1)
    answer = await ask(broker, ApiKey.FETCH, 12, fetch(session=session))
    assert codes(answer) == {"u": ErrorCode.NONE, "t": REFUSED}
    records = {one["topic"]: one["partitions"][0]["records"] for one in answer["responses"]}
    assert not records["t"]
    assert bytes(records["u"]) == b"secret"


async def test_a_session_is_of_the_principal_that_has_opened_it(broker: FakeBroker) -> None:
    async def fetched(who: Principal, *names: str, session: tuple[int, int]) -> dict[str, Any]:
        message = fetch(*names, session=session)
        answer: dict[str, Any] = await ask(broker, ApiKey.FETCH, 12, message, who)
        return answer

    opened = await fetched(ALICE, "t", session=(0, 0))
    session_id = opened["session_id"]
    stolen = await fetched(BOB, session=(session_id, 1))
    assert stolen["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # Nor can others end it, or put theirs in its place.
    for epoch in (0, -1):
        await fetched(BOB, "u", session=(session_id, epoch))
    answer = await fetched(ALICE, session=(session_id, 1))
    assert (answer["error_code"], answer["session_id"]) == (ErrorCode.NONE, session_id)
