"""Partitions added, elected and moved through `dispatch`, with the real controller behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.apis.administration import _elections as elections
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("N1", "C3")
_NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED


def request(name: str, count: int, *replicas: int, dry: bool = False) -> dict[str, Any]:
    assignments = [{"broker_ids": replicas}] if replicas else None
    topic = {"name": name, "count": count, "assignments": assignments}
    return {"topics": [topic], "timeout_ms": 1000, "validate_only": dry}


@pytest.mark.parametrize("version", SERVED[ApiKey.CREATE_PARTITIONS])
async def test_partitions_are_added(version: int) -> None:
    broker = ControlledBroker()
    broker.cluster.assign("t", (1, 2))
    (result,) = (await ask(broker, 37, version, request("t", 2, 3, 1, dry=True)))["results"]
    assert (result["name"], result["error_code"], result["error_message"]) == ("t", 0, None)
    assert len(broker.cluster.topic("t").partitions) == 1
    (result,) = (await ask(broker, 37, version, request("t", 2, 3, 1)))["results"]
    assert result["error_code"] == 0
    topic = broker.metadata.image.topics.by_name("t")
    assert topic is not None
    assert topic.partitions[1].replicas == (3, 1)
    (result,) = (await ask(broker, 37, version, request("t", 2)))["results"]
    assert result["error_code"] == ErrorCode.INVALID_PARTITIONS
    assert result["error_message"] == "The topic has 2 partition(s): the new count must be above 2"


async def test_a_topic_that_is_named_twice_is_answered_once_and_stays() -> None:
    broker = ControlledBroker()
    broker.cluster.assign("t", (1, 2))
    twice = request("t", 2)
    (result,) = (await ask(broker, 37, 3, twice | {"topics": twice["topics"] * 2}))["results"]
    assert (result["name"], result["error_code"]) == ("t", ErrorCode.INVALID_REQUEST)
    assert len(broker.cluster.topic("t").partitions) == 1


async def test_a_controller_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from raftctl.errors import KafkaError

    async def call(*_: object) -> None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    broker = ControlledBroker()
    monkeypatch.setattr(broker, "call", call)
    (result,) = (await ask(broker, 37, 3, request("t", 2)))["results"]
    assert (result["name"], result["error_code"]) == ("t", ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize("version", SERVED[ApiKey.ELECT_LEADERS])
async def test_leaders_are_elected(version: int) -> None:
    broker = ControlledBroker()
    cluster = broker.cluster
    cluster.assign("t", (1, 2), (2, 1))
    cluster.fence(1)
    cluster.heartbeat(1)
    cluster.alter(2, cluster.item("t", 2, 1))
    topics = [{"topic": "t", "partitions": [1, 0, 7]}]
    message = {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1000}
    answer = await ask(broker, 43, version, message)
    assert answer.get("error_code", 0) == 0
    (topic,) = answer["replica_election_results"]
    assert topic["topic"] == "t"
    assert [(one["partition_id"], one["error_code"]) for one in topic["partition_result"]] == [
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (0, 0),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    image = broker.metadata.image.topics.by_name("t")
    assert image is not None
    assert image.partitions[0].leader == 1
    everything = {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000}
    assert (await ask(broker, 43, version, everything))["replica_election_results"] == []


@pytest.mark.req("C5", "C13")
@pytest.mark.parametrize("named", [False, True])
async def test_the_controller_is_asked_for_a_slice_of_elections_at_a_time(
    monkeypatch: pytest.MonkeyPatch, slice_steps: Callable[[int], None], named: bool
) -> None:
    monkeypatch.setattr(elections, "PARTITIONS_MAX", 2)
    slice_steps(1)
    broker = ControlledBroker()
    cluster = broker.cluster
    for name in ("t", "u"):
        cluster.assign(name, (1, 2), (2, 1), (1, 2), (1, 2))
    cluster.fence(1)
    cluster.heartbeat(1)
    for name in ("t", "u"):
        for number in (0, 2, 3):
            cluster.alter(2, cluster.item(name, 2, 1, partition_id=number))
    broker.publish()
    asked: list[int] = []
    call = broker.call

    async def counted(request: Any, timeout_ms: int) -> Any:
        asked.append(len(request.partitions))
        return await call(request, timeout_ms)

    monkeypatch.setattr(broker, "call", counted)
    topics = [{"topic": name, "partitions": [0, 1, 2, 3]} for name in ("t", "u")]
    message = {"election_type": 0, "topic_partitions": topics if named else None}
    answer = await ask(broker, 43, 2, message | {"timeout_ms": 1000})
    found = [
        (topic["topic"], one["partition_id"], one["error_code"])
        for topic in answer["replica_election_results"]
        for one in topic["partition_result"]
    ]
    elected = [(name, number, 0) for name in ("t", "u") for number in (0, 2, 3)]
    if named:
        elected = sorted([*elected, *((name, 1, _NOT_NEEDED) for name in ("t", "u"))])
    assert found == elected
    assert max(asked) == 2
    assert sum(asked) == len(elected), "of all only those not led as wanted"
    image = broker.metadata.image
    leaders = [one.leader for topic in image.topics.in_order() for _, one in topic.items()]
    assert leaders == [1, 2, 1, 1] * 2


async def test_an_election_of_no_known_kind() -> None:
    broker = ControlledBroker()
    message = {"election_type": 9, "topic_partitions": None, "timeout_ms": 1000}
    assert (await ask(broker, 43, 2, message))["error_code"] == ErrorCode.INVALID_REQUEST


@pytest.mark.req("C7")
@pytest.mark.parametrize("version", SERVED[ApiKey.ALTER_PARTITION_REASSIGNMENTS])
async def test_reassignments(version: int) -> None:
    broker = ControlledBroker()
    broker.cluster.assign("t", (1, 2), (1, 2))
    partitions = [
        {"partition_index": 0, "replicas": [3, 2]},
        {"partition_index": 1, "replicas": None},
    ]
    topics = [{"name": "t", "partitions": partitions}]
    answer = await ask(broker, 45, version, {"timeout_ms": 1000, "topics": topics})
    assert answer["error_code"] == 0
    (topic,) = answer["responses"]
    assert [(one["partition_index"], one["error_code"]) for one in topic["partitions"]] == [
        (0, 0),
        (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]
    everything = {"timeout_ms": 1000, "topics": None}
    some = {"timeout_ms": 1000, "topics": [{"name": "t", "partition_indexes": [0, 1, 9]}]}
    none = {"timeout_ms": 1000, "topics": [{"name": "u", "partition_indexes": [0]}]}
    moving = {
        "partition_index": 0,
        "replicas": [3, 2, 1],
        "adding_replicas": [3],
        "removing_replicas": [1],
    }
    for asked, expected in ((everything, [moving]), (some, [moving]), (none, None)):
        found = (await ask(broker, 46, 0, asked))["topics"]
        assert (found[0]["partitions"] if found else None) == expected
