"""Transactional producers and operators, in every version of their requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.apis.transactional import _transaction_admin as transaction_admin
from broker.protocol.versions import SERVED, ApiKey
from broker.transactions._core import MarkersWritten
from raftctl.errors import ErrorCode
from tests.unit.broker.apis.asking import ask

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import FakeBroker

TOPICS = [{"name": "t", "partitions": [0, 1]}]
NO_FILTER: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
ABSENT = [{"name": "t", "partitions": [0]}, {"name": "absent", "partitions": [0]}]


async def begin(broker: FakeBroker, name: str = "x") -> dict[str, Any]:
    """A producer, as its requests name it."""
    found = {"error_code": -1}
    while found["error_code"] != 0:
        await ask(broker, 10, 4, {"key_type": 1, "coordinator_keys": [name]})
        await asyncio.sleep(0)
        message = {"transactional_id": name, "transaction_timeout_ms": 1_000}
        found = await ask(broker, ApiKey.INIT_PRODUCER_ID, 4, message)
    producer = {key: found[key] for key in ("producer_id", "producer_epoch")}
    return {"transactional_id": name, **producer}


async def add(
    broker: FakeBroker, version: int, who: dict[str, Any], topics: list[dict[str, Any]]
) -> dict[tuple[str, int], int]:
    """The error of each partition."""
    if version >= 4:
        message: dict[str, Any] = {
            "transactions": [{**who, "verify_only": False, "topics": topics}]
        }
    else:
        message = {f"v3_and_below_{key}": value for key, value in who.items()}
        message["v3_and_below_topics"] = topics
    answer = await ask(broker, ApiKey.ADD_PARTITIONS_TO_TXN, version, message)
    if version >= 4:
        results = answer["results_by_transaction"][0]["topic_results"]
    else:
        results = answer["results_by_topic_v3_and_below"]
    return {
        (topic["name"], one["partition_index"]): one["partition_error_code"]
        for topic in results
        for one in topic["results_by_partition"]
    }


@pytest.mark.req("T2", "N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.ADD_PARTITIONS_TO_TXN])
async def test_partitions_are_added_all_or_none(broker: FakeBroker, version: int) -> None:
    who = await begin(broker)
    assert await add(broker, version, who, ABSENT) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.transactions.core_of("x").known["x"].partitions == frozenset()
    assert await add(broker, version, who, TOPICS) == {("t", 0): 0, ("t", 1): 0}
    late = {**who, "producer_epoch": who["producer_epoch"] + 1}
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert set((await add(broker, version, late, TOPICS)).values()) == {fenced}
    await broker.transactions.stop()


@pytest.mark.req("T2")
@pytest.mark.parametrize("version", range(4))
async def test_a_topic_without_partitions_is_told(broker: FakeBroker, version: int) -> None:
    who = await begin(broker)
    body = {f"v3_and_below_{key}": value for key, value in who.items()}
    empty = {"name": "t", "partitions": []}
    answer = await ask(broker, 24, version, body | {"v3_and_below_topics": [empty]})
    (told,) = answer["results_by_topic_v3_and_below"]
    assert (told["name"], told["results_by_partition"]) == ("t", [])
    await broker.transactions.stop()


@pytest.mark.req("T2")
async def test_clients_name_no_partitions_of_the_brokers_own_topics(broker: FakeBroker) -> None:
    who = await begin(broker)
    own = [{"name": "__transaction_state", "partitions": [0]}, *TOPICS]
    told = await add(broker, 3, who, own)
    not_tried = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert told.pop(("__transaction_state", 0)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert set(told.values()) == {not_tried}
    # Brokers do, for the offsets of groups.
    assert await add(broker, 4, who, own[:1]) == {("__transaction_state", 0): 0}
    await broker.transactions.stop()


@pytest.mark.req("T2", "N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.END_TXN])
async def test_a_transaction_ends_and_operators_see_it(broker: FakeBroker, version: int) -> None:
    who = await begin(broker)
    wish = {**who, "committed": True}
    answer = await ask(broker, ApiKey.END_TXN, version, wish)
    assert answer["error_code"] == ErrorCode.INVALID_TXN_STATE
    await add(broker, 3, who, TOPICS)
    (found,) = await described(broker, "x")
    assert found["transaction_state"] == "Ongoing"
    assert found["topics"] == [{"topic": "t", "partitions": [0, 1]}]
    assert (await ask(broker, ApiKey.END_TXN, version, wish))["error_code"] == 0
    found, unknown = await described(broker, "x", "nobody")
    assert found["transaction_state"] == "PrepareCommit"
    assert unknown["error_code"] in (
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    await broker.transactions.stop()


@pytest.mark.req("T2")
async def test_a_client_goes_on_when_its_last_transaction_has_ended(broker: FakeBroker) -> None:
    who = await begin(broker)
    await add(broker, 3, who, TOPICS)
    await ask(broker, ApiKey.END_TXN, 3, {**who, "committed": True})
    # Brokers, who ask for many, are told at once.
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert set((await add(broker, 4, who, TOPICS)).values()) == {busy}
    adding = asyncio.create_task(add(broker, 3, who, TOPICS))
    for _ in range(5):
        await asyncio.sleep(0)
    await broker.transactions.ask(MarkersWritten(*who.values()))
    assert set((await adding).values()) == {ErrorCode.NONE}
    await broker.transactions.stop()


@pytest.mark.req("T2")
async def test_the_next_transaction_ends_before_the_last_has_its_markers(
    broker: FakeBroker,
) -> None:
    """A client of version 2 has its answer when the outcome is decided."""
    who = await begin(broker)
    await add(broker, 3, who, TOPICS)
    done = await ask(broker, ApiKey.END_TXN, 5, {**who, "committed": True})
    following = {**who, "producer_epoch": done["producer_epoch"]}
    early = await ask(broker, ApiKey.END_TXN, 5, {**following, "committed": False})
    assert early["error_code"] == ErrorCode.CONCURRENT_TRANSACTIONS
    await broker.transactions.ask(MarkersWritten(*following.values()))
    after = await ask(broker, ApiKey.END_TXN, 5, {**following, "committed": False})
    assert (after["error_code"], after["producer_epoch"]) == (0, done["producer_epoch"] + 1)
    await broker.transactions.stop()


@pytest.mark.req("T2")
@pytest.mark.parametrize("given", [{"producer_id": 5}, {"producer_epoch": 0}], ids=str)
@pytest.mark.parametrize("name", ["x", None])
async def test_a_producer_goes_on_with_id_and_epoch_or_neither(
    broker: FakeBroker, given: dict[str, int], name: str | None
) -> None:
    await begin(broker)
    nothing = {"producer_id": -1, "producer_epoch": -1}
    message = {"transactional_id": name, "transaction_timeout_ms": 1_000, **nothing, **given}
    answer = await ask(broker, ApiKey.INIT_PRODUCER_ID, 4, message)
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    await broker.transactions.stop()


@pytest.mark.req("T2")
async def test_an_empty_transactional_id_is_refused_by_every_broker(broker: FakeBroker) -> None:
    # There is no coordinator yet, so nobody looks who would hold it.
    who = {"transactional_id": "", "producer_id": 1, "producer_epoch": 0}
    code = ErrorCode.INVALID_REQUEST
    for version in (3, 4):
        assert set((await add(broker, version, who, TOPICS)).values()) == {code}
    for key, version, fields in (
        (ApiKey.END_TXN, 5, {"committed": True}),
        (ApiKey.ADD_OFFSETS_TO_TXN, 3, {"group_id": "g"}),
        (ApiKey.INIT_PRODUCER_ID, 4, {"transaction_timeout_ms": 1_000}),
    ):
        assert (await ask(broker, key, version, {**who, **fields}))["error_code"] == code
    assert [one["error_code"] for one in await described(broker, "")] == [code]
    await broker.transactions.stop()
    await broker.groups.stop()


async def described(broker: FakeBroker, *names: str) -> list[dict[str, Any]]:
    message = {"transactional_ids": names}
    answer = await ask(broker, ApiKey.DESCRIBE_TRANSACTIONS, 0, message)
    states: list[dict[str, Any]] = answer["transaction_states"]
    return states


@pytest.mark.req("T3")
async def test_many_transactions_are_listed_some_in_each_turn(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"x", "y", "z"}
    for name in names:
        await begin(broker, name)
    monkeypatch.setattr(transaction_admin, "STEP_ITEMS", 1)
    assert broker.transactions is not None
    turns = broker.transactions.shards.turns
    take_turn, taken = turns.next, 0

    async def count() -> None:
        nonlocal taken
        taken += 1
        await take_turn()

    monkeypatch.setattr(turns, "next", count)
    answer = await ask(broker, ApiKey.LIST_TRANSACTIONS, 1, {**NO_FILTER, "duration_filter": -1})
    assert {one["transactional_id"] for one in answer["transaction_states"]} == names
    assert taken == len(names)
    await broker.transactions.stop()


@pytest.mark.req("T3", "N1")
@pytest.mark.parametrize("version", SERVED[ApiKey.LIST_TRANSACTIONS])
async def test_transactions_are_listed_by_state_and_producer(
    broker: FakeBroker, version: int
) -> None:
    who = await begin(broker)
    await add(broker, 3, who, TOPICS)

    async def listed(
        states: list[str], ids: list[int], at_least_ms: int = -1, pattern: str | None = None
    ) -> list[str]:
        message = {
            "state_filters": states,
            "producer_id_filters": ids,
            "duration_filter": at_least_ms,
            "transactional_id_pattern": pattern,
        }
        answer = await ask(broker, ApiKey.LIST_TRANSACTIONS, version, message)
        return [one["transactional_id"] for one in answer["transaction_states"]]

    assert await listed([], []) == ["x"]
    assert await listed(["Ongoing"], [who["producer_id"]]) == ["x"]
    assert await listed(["Empty"], []) == []
    assert await listed(["Nonsense"], []) == []
    assert await listed([], [77]) == []
    if version >= 1:
        assert await listed([], [], 0) == []
        broker.wall_ms += 10
        assert await listed([], [], 5) == ["x"]
    if version >= 2:
        assert await listed([], [], pattern="x|y") == ["x"]
        assert await listed([], [], pattern="") == ["x"]
        assert await listed([], [], pattern="xx+") == []
        answer = await ask(
            broker,
            ApiKey.LIST_TRANSACTIONS,
            version,
            {**NO_FILTER, "transactional_id_pattern": "("},
        )
        assert answer["error_code"] == ErrorCode.INVALID_REGULAR_EXPRESSION
    await broker.transactions.stop()


@pytest.mark.req("N3")
async def test_a_marker_of_no_producer_is_refused(broker: FakeBroker) -> None:
    """The broker would not know whose transaction ends, and end itself."""
    marker = {
        "producer_id": -1,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    answer = await ask(broker, ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
    [partition] = answer["markers"][0]["topics"][0]["partitions"]
    assert partition["error_code"] == ErrorCode.INVALID_REQUEST
    assert broker.replicas.appended == []
