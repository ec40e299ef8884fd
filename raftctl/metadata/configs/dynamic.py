"""Configs that change while a cluster runs: those of topics, brokers and groups.

A broker key may be set for all brokers (the resource without a name) or for one. Those from which
the controller decides are the same for all. Every other broker key stands in the broker's file and
changes with a restart.

A broker key is dynamic if it is the default of a topic's key, a limit of connections, or one of a
few rates. Its value is parsed with the topic's key, so both accept the same values. Its unit may
differ: hours of `log.retention.hours` are milliseconds of `retention.ms`. Keys of one listener are
in `listeners`.

Sources: KIP-226, KIP-339, KIP-848; the configuration reference of Apache Kafka 4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import INT_MAX, LONG_MAX
from raftctl.metadata.configs.listeners import STORE_KEYS, check_listener_keys, dynamic_listener_key
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
"""Broker keys that decide elections. No broker has a value of its own: the controller would have to
choose between the values of a partition's replicas."""


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


_COUNTS = re.compile(r"[^,\s]+:[0-9]+")


def _parse_counts(text: str) -> tuple[str, ...]:
    """Return `HOST:COUNT` items as they are written. Raises ValueError."""
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    if not all(_COUNTS.fullmatch(item) for item in items):
        raise ValueError(text)
    return items


_LIMITS = (
    integer_key("max.connections", 0, INT_MAX, INT_MAX, "The connections open at once."),
    integer_key(
        "max.connection.creation.rate", 1, INT_MAX, INT_MAX, "The new connections a second."
    ),
    integer_key("max.connections.per.ip", 0, INT_MAX, INT_MAX, "The connections of one address."),
    TopicKey(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        (),
        _parse_counts,
        "a list of HOST:COUNT",
        (),
        "The same for some addresses.",
    ),
)
"""Limits of connections; see KIP-402 and KIP-612."""

_RATE = "Bytes a second that this broker {} for throttled replicas, see `{}`."
_OWN_KEYS = tuple(
    integer_key(name, 0, LONG_MAX, LONG_MAX, description)
    for name, description in {
        "leader.replication.throttled.rate": _RATE.format(
            "sends", "leader.replication.throttled.replicas"
        ),
        "follower.replication.throttled.rate": _RATE.format(
            "fetches", "follower.replication.throttled.replicas"
        ),
        "replica.alter.log.dirs.io.max.bytes.per.second": (
            "Bytes a second that this broker copies from one of its log directories to another."
        ),
    }.items()
)
"""Dynamic broker keys that are not the default of a topic key."""


def _broker_keys() -> dict[str, BrokerKey]:
    """Return the dynamic broker keys by name, in alphabetical order."""
    found = {
        key.name: BrokerKey(key.name, key.type, key.default, key.description, key.rule, key)
        for key in (*_OWN_KEYS, *_LIMITS)
    }
    for key in TOPIC_KEYS.values():
        for name, factor in key.broker_keys:
            found[name] = BrokerKey(
                name, key.type, key.default, key.description, key.rule, key, factor
            )
    return dict(sorted(found.items()))


BROKER_KEYS: Mapping[str, BrokerKey] = _broker_keys()
"""Every broker key that changes while the broker runs, by name."""

_HEARTBEATS = "How often a member of the group reports."
_SESSIONS = "A member silent for this long leaves the group."
GROUP_KEYS: Mapping[str, TopicKey] = {
    name: integer_key(name, low, high, low, description)
    for name, low, high, description in (
        ("consumer.heartbeat.interval.ms", 5_000, 15_000, _HEARTBEATS),
        ("consumer.session.timeout.ms", 45_000, 60_000, _SESSIONS),
    )
}
"""Every key of a group, by name."""


def validate_broker_config(overrides: Mapping[str, str], *, one_broker: bool) -> None:
    """Check the overrides of one broker, or of all.

    Raises KafkaError: INVALID_CONFIG names the key and the valid values; INVALID_REQUEST if the key
    cannot change while the broker runs.
    """
    check_listener_keys(overrides, one_broker=one_broker)
    for name in sorted(overrides):
        listener_key = dynamic_listener_key(name)
        if listener_key in STORE_KEYS:
            # Whether a store can be used is known only to the broker that has the files.
            continue
        key = BROKER_KEYS.get(listener_key or name)
        if key is None:
            message = f"{name} cannot change while brokers run: set it in their files and restart"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if one_broker and name in CLUSTER_WIDE:
            message = f"{name} is the same for all brokers: leave the broker's name empty"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        refuse_without_effect(name, key.key, key.parse(overrides[name]))


def group_keys(bounds: Mapping[str, tuple[int, int]]) -> dict[str, TopicKey]:
    """Return `GROUP_KEYS` with these bounds: the least and the greatest value of each key, in ms.

    The bounds are static keys of the controllers, since a group's coordinator may be any broker.
    """
    return {
        name: integer_key(name, *bounds[name], int(str(key.default)), key.description)
        for name, key in GROUP_KEYS.items()
    }


def validate_group_config(
    overrides: Mapping[str, str], keys: Mapping[str, TopicKey] = GROUP_KEYS
) -> None:
    """Check the overrides of a group. Raises KafkaError(INVALID_CONFIG), which names the key."""
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
    """Check the overrides of a topic where these broker keys are set for all brokers.

    Raises KafkaError(INVALID_CONFIG); see `validate_topic_config`. Two values may contradict each
    other although only one of them is an override.
    """
    validate_topic_config(overrides, dynamic_defaults(for_all_brokers, static))
