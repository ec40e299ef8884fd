"""The configs of a topic: defaults, the broker's keys, overrides, a message for each mistake."""

from __future__ import annotations

import dataclasses

import pytest
from immutables import Map

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.dynamic import validate_broker_config
from raftctl.metadata.configs.topic import (
    TOPIC_KEYS,
    ConfigType,
    TopicConfig,
    effective,
    text_of,
    topic_defaults,
    validate_topic_config,
)


class Broker:
    """Stands for a node's configuration."""

    log_retention_ms: int | None = None
    log_retention_minutes: int | None = None
    log_retention_hours: int | None = 168
    log_segment_bytes = 4_096
    min_insync_replicas = 2


def test_every_key_is_an_attribute_with_a_default_of_its_type() -> None:
    types = {
        ConfigType.BOOLEAN: bool,
        ConfigType.STRING: str,
        ConfigType.INT: int,
        ConfigType.LONG: int,
        ConfigType.DOUBLE: float,
        ConfigType.LIST: tuple,
    }
    assert len(TOPIC_KEYS) == 36
    for name, key in TOPIC_KEYS.items():
        assert getattr(TopicConfig(), name.replace(".", "_")) == key.default
        assert type(key.default) is types[key.type]
        assert key.description.endswith(".")
        assert key.rule


def test_every_default_is_valid_as_text() -> None:
    written = {name: text_of(key.default) for name, key in TOPIC_KEYS.items()}
    validate_topic_config(written, TopicConfig())
    assert effective(written, dataclasses.replace(TopicConfig(), retention_ms=1)) == TopicConfig()


def test_the_broker_sets_defaults_and_the_finest_unit_wins() -> None:
    broker = Broker()
    assert topic_defaults(broker).segment_bytes == 4_096
    assert topic_defaults(broker).min_insync_replicas == 2
    assert topic_defaults(broker).retention_ms == 168 * 3_600_000
    broker.log_retention_minutes = 3
    assert topic_defaults(broker).retention_ms == 180_000
    broker.log_retention_ms = 5
    assert topic_defaults(broker).retention_ms == 5


def test_for_ever_has_no_unit() -> None:
    broker = Broker()
    broker.log_retention_hours = -1
    assert topic_defaults(broker).retention_ms == -1


def test_a_broker_that_says_nothing_leaves_the_defaults() -> None:
    assert topic_defaults(object()) == TopicConfig()


def test_overrides_come_first() -> None:
    defaults = topic_defaults(Broker())
    overrides = Map(
        {"retention.ms": " 7 ", "cleanup.policy": "compact, delete", "preallocate": "TRUE"}
    )
    config = effective(overrides, defaults)
    assert config.retention_ms == 7
    assert config.cleanup_policy == ("compact", "delete")
    assert config.preallocate is True
    assert config.segment_bytes == 4_096
    assert effective(Map(), defaults) is defaults


def test_a_key_of_a_later_version_is_passed_over_when_read() -> None:
    assert effective({"new.key": "1"}, TopicConfig()) == TopicConfig()


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("retention", "1", "Unknown topic config name: retention"),
        ("retention.ms", None, "retention.ms has no value"),
        ("retention.ms", "-2", "an integer at least -1"),
        ("retention.ms", str(2**63), "an integer at least -1"),
        ("retention.ms", "1_000", "an integer at least -1"),
        ("retention.ms", "soon", "'soon' for retention.ms"),
        ("segment.bytes", "1024", "an integer at least 1048576"),
        ("segment.bytes", str(2**31), "an integer at least 1048576"),
        ("min.insync.replicas", "0", "an integer at least 1"),
        ("compression.gzip.level", "0", "between -1 and 9 other than 0"),
        ("compression.lz4.level", "18", "between 1 and 17"),
        ("compression.type", "lzma", "one of uncompressed, zstd"),
        ("cleanup.policy", "delete,delete", "a list of delete, compact"),
        ("cleanup.policy", "forget", "a list of delete, compact"),
        ("preallocate", "yes", "true or false"),
        ("preallocate", "true", "it must be false: files of segments grow"),
        ("preallocate", " TRUE ", "it must be false: files of segments grow"),
        ("compression.lz4.level", "3", "'3' for compression.lz4.level: it must be 9: what packs"),
        ("local.retention.ms", "1000", "it must be -2: there is no tiered storage"),
        ("local.retention.bytes", "-1", "it must be -2: there is no tiered storage"),
        ("remote.copy.lag.ms", "5", "it must be 0: there is no tiered storage"),
        ("remote.copy.lag.bytes", "5", "it must be 0: there is no tiered storage"),
        ("min.cleanable.dirty.ratio", "1.5", "between 0 and 1"),
        ("min.cleanable.dirty.ratio", "nan", "between 0 and 1"),
        ("message.timestamp.type", "Now", "one of CreateTime, LogAppendTime"),
        ("leader.replication.throttled.replicas", "1:2:3", "a list of partition:broker"),
        ("remote.storage.enable", "true", "there is no tiered storage"),
    ],
)
def test_a_bad_value_is_told_with_its_key_and_the_rule(
    key: str, value: str | None, says: str
) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_config({key: value}, TopicConfig())
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert says in caught.value.message


@pytest.mark.parametrize("one_broker", [False, True])
def test_brokers_are_not_told_either_to_do_what_they_cannot(one_broker: bool) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_broker_config({"log.preallocate": "true"}, one_broker=one_broker)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "log.preallocate" in caught.value.message
    validate_broker_config({"log.preallocate": "false"}, one_broker=one_broker)


def test_good_values_pass() -> None:
    validate_topic_config(
        {
            "leader.replication.throttled.replicas": "*",
            "follower.replication.throttled.replicas": "0:1,1:2",
            "compression.gzip.level": "-1",
            "min.cleanable.dirty.ratio": "0.25",
            "remote.storage.enable": "false",
        },
        TopicConfig(),
    )


def test_lags_of_compaction_are_compared_with_what_is_in_force() -> None:
    defaults = dataclasses.replace(TopicConfig(), max_compaction_lag_ms=10)
    with pytest.raises(KafkaError, match="is above"):
        validate_topic_config({"min.compaction.lag.ms": "11"}, defaults)
    validate_topic_config({"min.compaction.lag.ms": "10"}, defaults)
