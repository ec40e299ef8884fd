"""How the protocols of two systems are compared."""

from __future__ import annotations

from tests.bench.kafka.turns import Quantity
from tests.bench.security.transport import compare

VALUES = {
    "raftctl_PLAINTEXT": [50.0, 60.0, 40.0],
    "raftctl_SSL": [40.0],
    "raftctl_SASL_SSL": [45.0],
    "kafka_PLAINTEXT": [100.0],
    "kafka_SSL": [20.0],
    "kafka_SASL_SSL": [0.0],
}
MEGABYTES = Quantity("MB/s", "64 MB")


def test_each_protocol_is_compared_with_plaintext_and_with_the_peers() -> None:
    figures = compare("produce_acks_all", VALUES, MEGABYTES)
    assert {name: (one["median"], one["goal"]) for name, one in figures.items()} == {
        "produce_acks_all_PLAINTEXT_to_kafka": (0.5, "goal: at least 1"),
        "produce_acks_all_SSL_to_kafka": (2.0, "goal: at least 1"),
        "produce_acks_all_raftctl_SSL_to_plaintext": (0.8, "goal: at least 0.8"),
        "produce_acks_all_kafka_SSL_to_plaintext": (0.2, "no goal"),
        "produce_acks_all_raftctl_SASL_SSL_to_plaintext": (0.9, "goal: at least 0.8"),
        "produce_acks_all_kafka_SASL_SSL_to_plaintext": (0.0, "no goal"),
    }


def test_ours_alone_is_compared_with_its_plaintext_only() -> None:
    alone = {name: values for name, values in VALUES.items() if name.startswith("raftctl")}
    assert set(compare("latency_p50", alone, MEGABYTES)) == {
        "latency_p50_raftctl_SSL_to_plaintext",
        "latency_p50_raftctl_SASL_SSL_to_plaintext",
    }
    assert compare("consume_cold_from_disk", VALUES, MEGABYTES) == {}
