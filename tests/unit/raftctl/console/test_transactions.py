"""Transactions, those that hang above all; sizes and ends of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from raftctl.errors import ErrorCode, KafkaError
from raftctl.hanging_transactions import LONGEST_MS, OpenTransaction, hanging, may_hang
from tests.kit.authorizing import RuledAuthorizer
from tests.unit.raftctl.console.fake_brokers import FakeBrokers, Question
from tests.unit.raftctl.console.served import broker, partition, serving, topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.raftctl.console.served import Served

pytestmark = pytest.mark.req("W1")


def some_topics(served: Served) -> None:
    served.commit(
        *broker(1),
        *broker(2),
        *topic("t", partition(1, replicas=(1, 2)), partition(1, 1, replicas=(2, 1))),
        *topic("__transaction_state", partition(9, replicas=(1,))),
    )


def transaction(name: str, producer_id: int) -> dict[str, Any]:
    return {"transactional_id": name, "producer_id": producer_id, "transaction_state": "Ongoing"}


def listing(*found: dict[str, Any]) -> Any:
    def answer(asked: Question) -> Mapping[str, Any]:
        ids = asked.body["producer_id_filters"]
        shown = [one for one in found if not ids or one["producer_id"] in ids]
        return {"error_code": 0, "transaction_states": shown}

    return answer


def described(asked: Question) -> Mapping[str, Any]:
    """Each is open in t-0 since 5,000."""
    states = [
        {
            "error_code": 0,
            "transactional_id": name,
            "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": 5_000,
            "producer_id": 7,
            "producer_epoch": 2,
            "topics": [{"topic": "t", "partitions": [0]}],
        }
        for name in asked.body["transactional_ids"]
    ]
    return {"transaction_states": states}


def producers(*found: tuple[int, int, int]) -> Any:
    """(partition, producer id, start offset); each has written at the beginning of time."""

    def answer(asked: Question) -> Mapping[str, Any]:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": number,
                        "active_producers": [
                            {
                                "producer_id": producer_id,
                                "producer_epoch": 2,
                                "coordinator_epoch": 0,
                                "last_timestamp": 1_000,
                                "current_txn_start_offset": start,
                            }
                            for partition, producer_id, start in found
                            if (topic["name"], number) == ("t", partition)
                        ],
                    }
                    for number in topic["partition_indexes"]
                ],
            }
            for topic in asked.body["topics"]
        ]
        return {"topics": topics}

    return answer


def some_transactions() -> FakeBrokers:
    return FakeBrokers(
        {
            ("LIST_TRANSACTIONS", 1): listing(transaction("pay", 7)),
            ("LIST_TRANSACTIONS", 2): listing(),
            "DESCRIBE_TRANSACTIONS": described,
            "DESCRIBE_PRODUCERS": producers((0, 7, 3), (1, 7, 4), (1, 8, -1)),
            "FIND_COORDINATOR": {
                "coordinators": [{"node_id": 1, "error_code": 0, "error_message": None}]
            },
        }
    )


async def test_one_that_no_coordinator_knows_hangs_and_stands_first() -> None:
    async with serving(client=some_transactions()) as served:
        some_topics(served)
        answer = await served.get("transactions")
        hangs, known = answer["rows"]
        # Producer 7 is known to be at work in t-0, not in t-1.
        assert (hangs["hanging"], hangs["topic"], hangs["partition"]) == (True, "t", 1)
        assert (hangs["transactional_id"], hangs["start_offset"]) == (None, 4)
        assert (known["transactional_id"], known["hanging"]) == ("pay", False)
        assert (known["started_ms"], known["epoch"], known["partitions"]) == (5_000, 2, 1)
        found = await served.get("transactions/pay")
        assert found["topics"] == [{"topic": "t", "partitions": [0]}]


async def test_nobody_is_shown_as_hanging_while_a_coordinator_does_not_answer() -> None:
    fake = some_transactions()
    fake.answers["LIST_TRANSACTIONS", 1] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    async with serving(client=fake) as served:
        some_topics(served)
        assert await served.refused("transactions") == (504, "REQUEST_TIMED_OUT")


async def test_who_does_not_see_all_ids_sees_none_that_hangs() -> None:
    rules = RuledAuthorizer("ALLOW User:alice READ TOPIC t")
    fake = some_transactions()
    async with serving(rules.authorizer, client=fake) as served:
        some_topics(served)
        answer = await served.get("transactions", who="User:alice")
        assert [row["transactional_id"] for row in answer["rows"]] == ["pay"]
        assert fake.questions("DESCRIBE_PRODUCERS") == []


async def test_a_transactional_id_that_is_not_there() -> None:
    fake = some_transactions()
    fake.answers["DESCRIBE_TRANSACTIONS"] = {
        "transaction_states": [{"error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}]
    }
    async with serving(client=fake) as served:
        assert await served.refused("transactions/x") == (404, "TRANSACTIONAL_ID_NOT_FOUND")
        assert fake.asked == []
        some_topics(served)
        assert await served.refused("transactions/x") == (404, "TRANSACTIONAL_ID_NOT_FOUND")


def test_what_hangs_is_old_and_attended_by_nobody() -> None:
    one = OpenTransaction("t", 0, 7, 0, 0, 5, 1_000)
    assert may_hang(one, LONGEST_MS + 1_001)
    assert not may_hang(one, LONGEST_MS + 1_000)
    other = one._replace(partition=1)
    assert hanging([other, one], set()) == [one, other]
    assert hanging([one, other], {(7, "t", 0)}) == [other]
    assert hanging([one], {(7, "u", 0), (8, "t", 0)}) == [one]


# --- logs -----------------------------------------------------------------------------------------


def directories(asked: Question) -> Mapping[str, Any]:
    """Broker 1 has 100 bytes of each partition, broker 2 has 70; copies do not count."""
    size = {1: 100, 2: 70}[asked.broker_id]
    names = {one["topic"]: one["partitions"] for one in asked.body["topics"]}
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": n, "partition_size": size * factor, "is_future_key": factor > 1}
                for n in numbers
                for factor in (1, 1_000)
            ],
        }
        for name, numbers in names.items()
    ]
    return {"error_code": 0, "results": [{"topics": topics}]}


def ends(asked: Question) -> Mapping[str, Any]:
    """The leader ends at 12, of which 9 are committed; followers at 8."""
    body = asked.body
    topics = []
    for named in body["topics"]:
        partitions = []
        for one in named["partitions"]:
            leads = asked.broker_id == one["partition_index"] + 1
            end = (12 if leads else 8) if body["replica_id"] == -2 else 9
            offset = 2 if one["timestamp"] == -2 else end
            partitions.append(
                {"partition_index": one["partition_index"], "offset": offset, "error_code": 0}
            )
        topics.append({"name": named["name"], "partitions": partitions})
    return {"topics": topics}


async def test_sizes_ends_and_the_lag_of_followers() -> None:
    fake = FakeBrokers({"DESCRIBE_LOG_DIRS": directories, "LIST_OFFSETS": ends})
    async with serving(client=fake) as served:
        some_topics(served)
        topics = await served.get("topics", filter="t")
        assert {row["name"]: row["size"] for row in topics["rows"]} == {
            "t": 2 * (100 + 70),
            "__transaction_state": 100,
        }
        first, second = (await served.get("topics/t/partitions"))["rows"]
        assert (first["size"], second["size"]) == (100, 70)
        assert (first["log_start"], first["log_end"], first["high_watermark"]) == (2, 12, 9)
        assert first["followers"] == [{"broker_id": 2, "lag": 4}]
        del fake.answers["DESCRIBE_LOG_DIRS"]
        fake.answers["LIST_OFFSETS"] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        fake.answers["DESCRIBE_LOG_DIRS", 1] = directories
        topics = await served.get("topics", who="User:alice")
        # A broker with a replica has not answered: a part of a size would be a wrong size.
        assert {row["name"]: row["size"] for row in topics["rows"]} == {
            "t": None,
            "__transaction_state": 100,
        }
        first, _ = (await served.get("topics/t/partitions"))["rows"]
        assert (first["log_end"], first["followers"]) == (None, [{"broker_id": 2, "lag": None}])
