"""Configs that change while a cluster runs: those of topics, brokers and groups.

A broker key may be set for all brokers (the resource without a name) or for one. Those from which
the controller decides are the same for all. Every other broker key stands in the broker's file and
changes with a restart.
Sources: KIP-226, KIP-339, KIP-848; the configuration reference of Apache Kafka 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import LONG_MAX
from raftctl.metadata.configs.topic import (
    TOPIC_KEYS,
    ConfigType,
    TopicConfig,
    TopicKey,
    Value,
    dynamic_defaults,
    integer_key,
    refuse_without_effect,
    scaled,
    validate_topic_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER_WIDE = ("min.insync.replicas", "unclean.leader.election.enable")
"""Broker keys that the controller's decisions depend on."""


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """Broker key that changes while the broker runs."""

    name: str
    type: ConfigType
    default: Value
    description: str
    rule: str
    key: TopicKey
    """Parser and rule of its value."""
    factor: int = 1
    """Its value times this is that of the topic key."""

    def parse(self, text: str) -> Value:
        """Return the value in the topic key's unit. Raises KafkaError(INVALID_CONFIG)."""
        try:
            return scaled(self.key, text, self.factor)
        except (ValueError, KeyError):
            message = f"Invalid value {text!r:.100} for {self.name}: it must be {self.rule}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None


_RATE = "Bytes a second that this broker {} for throttled replicas, see `{}`."
_OWN_KEYS = (
    integer_key(
        "leader.replication.throttled.rate",
        0,
        LONG_MAX,
        LONG_MAX,
        _RATE.format("sends", "leader.replication.throttled.replicas"),
    ),
    integer_key(
        "follower.replication.throttled.rate",
        0,
        LONG_MAX,
        LONG_MAX,
        _RATE.format("fetches", "follower.replication.throttled.replicas"),
    ),
    integer_key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        0,
        LONG_MAX,
        LONG_MAX,
        "Bytes a second that this broker copies from one of its log directories to another.",
    ),
)
"""Dynamic broker keys that are not the default of a topic key."""


def _broker_keys() -> dict[str, BrokerKey]:
    found = {
        key.name: BrokerKey(key.name, key.type, key.default, key.description, key.rule, key)
        for key in _OWN_KEYS
    }
    for key in TOPIC_KEYS.values():
        for name, factor in key.broker_keys:
            found[name] = BrokerKey(
                name, key.type, key.default, key.description, key.rule, key, factor
            )
    return dict(sorted(found.items()))


BROKER_KEYS: Mapping[str, BrokerKey] = _broker_keys()
"""Every broker key that changes while the broker runs, by name."""

GROUP_KEYS: Mapping[str, TopicKey] = {
    key.name: key
    for key in (
        integer_key(
            "consumer.heartbeat.interval.ms",
            5_000,
            15_000,
            5_000,
            "How often a member of the group reports.",
        ),
        integer_key(
            "consumer.session.timeout.ms",
            45_000,
            60_000,
            45_000,
            "A member silent for this long leaves the group.",
        ),
    )
}
"""Every key of a group, by name."""


def validate_broker_config(overrides: Mapping[str, str], *, one_broker: bool) -> None:
    """Checks the overrides of one broker, or of all.

    KafkaError(INVALID_CONFIG) names the key and says what it takes; INVALID_REQUEST if the key
    cannot change while the broker runs.
    """
    for name in sorted(overrides):
        key = BROKER_KEYS.get(name)
        if key is None:
            message = f"{name} cannot change while brokers run: set it in their files and restart"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if one_broker and name in CLUSTER_WIDE:
            message = f"{name} is the same for all brokers: leave the broker's name empty"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        refuse_without_effect(name, key.key, key.parse(overrides[name]))


def group_keys(bounds: Mapping[str, tuple[int, int]]) -> dict[str, TopicKey]:
    """`GROUP_KEYS` with these bounds, the least and the greatest value of each key."""
    return {
        name: integer_key(name, *bounds[name], int(str(key.default)), key.description)
        for name, key in GROUP_KEYS.items()
    }


def validate_group_config(
    overrides: Mapping[str, str], keys: Mapping[str, TopicKey] = GROUP_KEYS
) -> None:
    """Checks the overrides of a group; KafkaError(INVALID_CONFIG) names the key."""
    for name in sorted(overrides):
        key = keys.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            key.parse(overrides[name].strip())
        except (ValueError, KeyError):
            message = f"Invalid value {overrides[name]!r:.100} for {name}: it must be {key.rule}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None


def validate_topic_overrides(
    overrides: Mapping[str, str], for_all_brokers: Mapping[str, str], static: TopicConfig
) -> None:
    """Checks the overrides of a topic where these broker keys are set for all brokers."""
    validate_topic_config(overrides, dynamic_defaults(for_all_brokers, static))
