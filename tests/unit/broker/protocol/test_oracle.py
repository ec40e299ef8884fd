"""An independent codec, kafka-python's, reads our answers and writes requests for us."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from broker.protocol import codec
from broker.protocol._schema import load
from broker.protocol.versions import SERVED
from tests.kit.pieces import decode_request
from tests.unit.broker.protocol.strategies import messages, plain

NAMES = {
    0: ("producer", "Produce"),
    1: ("consumer", "Fetch"),
    2: ("consumer", "ListOffsets"),
    3: ("metadata", "Metadata"),
    8: ("consumer", "OffsetCommit"),
    9: ("consumer", "OffsetFetch"),
    10: ("metadata", "FindCoordinator"),
    11: ("consumer", "JoinGroup"),
    12: ("consumer", "Heartbeat"),
    13: ("consumer", "LeaveGroup"),
    14: ("consumer", "SyncGroup"),
    15: ("admin", "DescribeGroups"),
    16: ("admin", "ListGroups"),
    17: ("sasl", "SaslHandshake"),
    18: ("metadata", "ApiVersions"),
    19: ("admin", "CreateTopics"),
    20: ("admin", "DeleteTopics"),
    21: ("admin", "DeleteRecords"),
    22: ("producer", "InitProducerId"),
    23: ("consumer", "OffsetForLeaderEpoch"),
    24: ("producer", "AddPartitionsToTxn"),
    25: ("producer", "AddOffsetsToTxn"),
    26: ("producer", "EndTxn"),
    27: ("producer", "WriteTxnMarkers"),
    28: ("producer", "TxnOffsetCommit"),
    29: ("admin", "DescribeAcls"),
    30: ("admin", "CreateAcls"),
    31: ("admin", "DeleteAcls"),
    32: ("admin", "DescribeConfigs"),
    33: ("admin", "AlterConfigs"),
    34: ("admin", "AlterReplicaLogDirs"),
    35: ("admin", "DescribeLogDirs"),
    36: ("sasl", "SaslAuthenticate"),
    37: ("admin", "CreatePartitions"),
    42: ("admin", "DeleteGroups"),
    43: ("admin", "ElectLeaders"),
    44: ("admin", "IncrementalAlterConfigs"),
    45: ("admin", "AlterPartitionReassignments"),
    46: ("admin", "ListPartitionReassignments"),
    47: ("consumer", "OffsetDelete"),
    48: ("admin", "DescribeClientQuotas"),
    49: ("admin", "AlterClientQuotas"),
    50: ("admin", "DescribeUserScramCredentials"),
    51: ("admin", "AlterUserScramCredentials"),
    55: ("admin", "DescribeQuorum"),
    57: ("admin", "UpdateFeatures"),
    60: ("admin", "DescribeCluster"),
    61: ("admin", "DescribeProducers"),
    65: ("admin", "DescribeTransactions"),
    66: ("admin", "ListTransactions"),
    74: ("admin", "ListConfigResources"),
    75: ("admin", "DescribeTopicPartitions"),
}
API_VERSIONS = 18
WITHOUT_ORACLE = {38, 39, 40, 41, 64, 68, 69, 71, 72}
"""Delegation tokens, UnregisterBroker, ConsumerGroupHeartbeat and Describe, telemetry: kafka-python
does not know them."""
CASES = [(key, version) for key in NAMES for version in SERVED[key]]
FEW = settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def oracle(key: int, direction: str) -> Any:
    """The oracle's class of a message."""
    module, name = NAMES[key]
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python 3.11 deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(importlib.import_module(f"kafka.protocol.{module}"), name + direction)


def contained(message: dict[str, Any], container: Any, version: int) -> Any:
    """A message of ours as the oracle's object."""
    values = {}
    for name, value in message.items():
        inner = container._struct.fields[name]
        if inner.is_struct_array() and value is not None:
            value = [contained(item, inner.data_class, version) for item in value]
        elif inner.is_struct() and value is not None:
            value = contained(value, inner.data_class, version)
        values[name] = value
    return container(version=version, **values)


def comparable(value: Any) -> Any:
    """Without what the oracle shows in its own form: the bit field of authorized operations."""
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items() if "authorized_operations" not in k}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


def test_every_served_api_has_an_oracle() -> None:
    assert set(NAMES) | WITHOUT_ORACLE == {int(key) for key in SERVED}


@pytest.mark.req("N1")
@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_oracle_reads_our_answers(key: int, version: int) -> None:
    @FEW
    @given(messages(load(key, version, "response")))
    def check(message: dict[str, Any]) -> None:
        if key == API_VERSIONS:
            # With an error the oracle expects version 0, as KIP-511 has it.
            message["error_code"] = 0
        body = codec.encode_response_body(key, version, message)
        decoded = oracle(key, "Response").decode(body, version=version).to_dict(json=False)
        assert comparable(plain(decoded)) == comparable(plain(message))

    check()


@pytest.mark.req("N1")
@pytest.mark.parametrize(("key", "version"), CASES)
def test_we_read_the_oracle_s_requests(key: int, version: int) -> None:
    @FEW
    @given(messages(load(key, version, "request")), st.text(max_size=9))
    def check(message: dict[str, Any], client_id: str) -> None:
        request = contained(message, oracle(key, "Request"), version)
        request.with_header(correlation_id=9, client_id=client_id)
        frame = bytes(request.encode(version=version, header=True))
        decoded = decode_request(frame)
        assert (decoded.correlation_id, decoded.client_id) == (9, client_id)
        assert comparable(plain(decoded.body)) == comparable(plain(message))

    check()
