"""Features, the quorum and unregistered brokers through `dispatch`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode
from raftctl.metadata.features import METADATA_VERSION
from raftctl.metadata.requests.admin import DescribeQuorumResponse, QuorumNode, QuorumReplica
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker

pytestmark = pytest.mark.req("N1")
ELR = "eligible.leader.replicas.version"
DIRECTORY = UUID(int=70)


def features(level: int, kind: int) -> dict[str, Any]:
    update = {
        "feature": ELR,
        "max_version_level": level,
        "upgrade_type": kind,
        "allow_downgrade": kind > 1,
    }
    return {"timeout_ms": 1000, "feature_updates": [update], "validate_only": False}


@pytest.mark.req("C11")
@pytest.mark.parametrize("version", SERVED[ApiKey.UPDATE_FEATURES])
async def test_features_are_updated_and_told(version: int) -> None:
    broker = ControlledBroker()
    answer = await ask(broker, 57, version, features(1, 1))
    assert answer["error_code"] == 0
    assert [one["feature"] for one in answer.get("results", [{"feature": ELR}])] == [ELR]
    client = {"client_software_name": "test", "client_software_version": "1"}
    versions = await ask(broker, 18, 4, client)
    finalized = {one["name"]: one["max_version_level"] for one in versions["finalized_features"]}
    assert finalized == {ELR: 1, "metadata.version": METADATA_VERSION, "transaction.version": 2}
    supported = {
        one["name"]: (one["min_version"], one["max_version"])
        for one in versions["supported_features"]
    }
    assert supported == {
        ELR: (0, 1),
        "metadata.version": (1, METADATA_VERSION),
        "transaction.version": (0, 2),
    }
    answer = await ask(broker, 57, version, features(0, 1))
    assert answer["error_code"] == ErrorCode.INVALID_UPDATE_VERSION
    assert "safe downgrade" in answer["error_message"]
    assert (await ask(broker, 57, version, features(0, 2)))["error_code"] == 0


@pytest.mark.req("C2")
async def test_a_broker_is_unregistered() -> None:
    broker = ControlledBroker()
    assert (await ask(broker, 64, 0, {"broker_id": 3}))["error_code"] == 0
    assert 3 not in broker.metadata.image.brokers
    answer = await ask(broker, 64, 0, {"broker_id": 3})
    assert answer["error_code"] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer["error_message"] == "Broker 3 is not registered"


def quorum_request(topic: str) -> dict[str, Any]:
    return {"topics": [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]}


@pytest.mark.req("Q5")
@pytest.mark.parametrize("version", SERVED[ApiKey.DESCRIBE_QUORUM])
async def test_the_quorum_is_described(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    broker = ControlledBroker(controller_listener_names="QUORUM")
    request = quorum_request("__cluster_metadata")
    refused = await ask(broker, 55, version, request)
    assert refused["error_code"] == ErrorCode.UNSUPPORTED_VERSION, "a controller without quorum"

    async def call(*_: object) -> DescribeQuorumResponse:
        voters = (QuorumReplica(7, 40, 1_000, 900, DIRECTORY), QuorumReplica(8, 39, -1, -1))
        observers = (QuorumReplica(1, 20, 990, 800),)
        nodes = (QuorumNode(7, "somewhere", 9093),)
        return DescribeQuorumResponse(ErrorCode.NONE, "", 7, 5, 38, voters, observers, nodes=nodes)

    monkeypatch.setattr(broker, "call", call)
    answer = await ask(broker, 55, version, request)
    assert answer["error_code"] == 0
    (partition,) = answer["topics"][0]["partitions"]
    assert (partition["leader_id"], partition["leader_epoch"]) == (7, 5)
    assert partition["high_watermark"] == 38
    assert [(v["replica_id"], v["log_end_offset"]) for v in partition["current_voters"]] == [
        (7, 40),
        (8, 39),
    ]
    assert [v["replica_id"] for v in partition["observers"]] == [1]
    if version >= 2:
        directories = [v["replica_directory_id"] for v in partition["current_voters"]]
        assert directories == [DIRECTORY, None]
        (node,) = answer["nodes"]
        (listener,) = node["listeners"]
        assert (node["node_id"], listener["host"], listener["port"]) == (7, "somewhere", 9093)
        assert listener["name"] == "QUORUM"
    other = await ask(broker, 55, version, quorum_request("t"))
    assert other["error_code"] == 0
    (topic,) = other["topics"]
    assert topic["topic_name"] == "t"
    codes = [one["error_code"] for one in topic["partitions"]]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", SERVED[ApiKey.SASL_HANDSHAKE])
async def test_a_client_that_wants_sasl_is_told_that_there_is_none(version: int) -> None:
    broker = ControlledBroker()
    answer = await ask(broker, ApiKey.SASL_HANDSHAKE, version, {"mechanism": "PLAIN"})
    assert answer == {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}
    for late in SERVED[ApiKey.SASL_AUTHENTICATE]:
        answer = await ask(broker, ApiKey.SASL_AUTHENTICATE, late, {"auth_bytes": b"x"})
        assert answer["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
        assert "security.protocol=PLAINTEXT" in answer["error_message"]


@pytest.mark.parametrize("version", SERVED[ApiKey.API_VERSIONS])
@pytest.mark.parametrize(
    ("name", "number", "is_fine"),
    [
        ("librdkafka", "2.15.0-rc1", True),
        ("a", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a", "1.", False),
        ("a b", "1", False),
    ],
)
async def test_the_name_of_a_clients_software(
    version: int, name: str, number: str, is_fine: bool
) -> None:
    broker = ControlledBroker()
    software = {"client_software_name": name, "client_software_version": number}
    answer = await ask(broker, ApiKey.API_VERSIONS, version, software)
    if is_fine or version < 3:
        assert answer["error_code"] == 0
        assert answer["api_keys"]
        return
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert answer["api_keys"] == []
    assert not answer.get("finalized_features")
    assert not answer.get("supported_features")


async def test_features_that_begin_at_0_are_told_to_clients_that_know_such() -> None:
    broker = ControlledBroker()
    software = {"client_software_name": "a", "client_software_version": "1"}
    told = {}
    for version in (3, 4):
        answer = await ask(broker, ApiKey.API_VERSIONS, version, software)
        told[version] = [one["name"] for one in answer["supported_features"]]
    assert told[3] == ["metadata.version"]
    assert told[4] == [ELR, "metadata.version", "transaction.version"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(0, "UNSUPPORTED_ENDPOINT_TYPE"), (2, "MISMATCHED_ENDPOINT_TYPE"), (3, None)],
)
async def test_the_cluster_as_other_listeners_would_see_it(kind: int, code: str | None) -> None:
    request = {"include_cluster_authorized_operations": False, "endpoint_type": kind}
    answer = await ask(ControlledBroker(), 60, 1, request)
    assert ErrorCode(answer["error_code"]).name == (code or "UNSUPPORTED_ENDPOINT_TYPE")
    assert answer["cluster_id"] == ""
