"""Configs of client metrics: which metrics which clients push, and how often (KIP-714).

The name of the resource is that of a subscription. It holds for clients whose attributes all of its
patterns match; without patterns for every client. A pattern is one of RE2, whose time is linear in
the text, and matches the whole attribute.

Source: Apache Kafka's ClientMetricsConfigs, also for the errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import re2

from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import INT_MAX
from raftctl.metadata.configs.topic import ConfigType, TopicKey, integer_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALL_METRICS = "*"
ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern of `match` may look at."""
INTERVAL_MS = 300_000
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 3_600_000
_PATTERN_BYTES_MAX = 1 << 20
"""Memory for one compiled pattern."""
_METRICS, _INTERVAL, _MATCH = "metrics", "interval.ms", "match"


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _list_key(name: str, description: str) -> TopicKey:
    return TopicKey(name, ConfigType.LIST, (), _items, "a list", (), description)


CLIENT_METRICS_KEYS: Mapping[str, TopicKey] = {
    key.name: key
    for key in (
        integer_key(
            _INTERVAL, -INT_MAX - 1, INT_MAX, INTERVAL_MS, "How often the clients push, in ms."
        ),
        _list_key(_MATCH, "Patterns of the clients: ATTRIBUTE=REGEX,... None: every client."),
        _list_key(_METRICS, "Prefixes of the names of metrics; * for all."),
    )
}
"""Every key of a subscription, by name."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which metrics which clients push, and how often."""

    metrics: frozenset[str]
    """Prefixes of names; `ALL_METRICS` is every name."""
    interval_ms: int
    match: tuple[tuple[str, re2._Regexp], ...]
    """Attributes with the pattern that each must match."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Return whether the subscription holds for a client; a pattern needs its attribute."""
        return all(
            (value := attributes.get(name)) is not None and pattern.fullmatch(value) is not None
            for name, pattern in self.match
        )


def read_subscription(overrides: Mapping[str, str]) -> Subscription:
    """Return the subscription with these configs. Raises what `validate_client_metrics` raises."""
    interval = overrides.get(_INTERVAL)
    return Subscription(
        frozenset(_items(overrides.get(_METRICS, ""))),
        INTERVAL_MS if interval is None else _read_interval(interval),
        tuple(_read_match(_items(overrides.get(_MATCH, ""))).items()),
    )


def validate_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Check the configs of a subscription.

    Raises KafkaError: INVALID_REQUEST for no name, an unknown key or an interval out of bounds;
    INVALID_CONFIG for an interval that is no number and a pattern that cannot be used.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in sorted(overrides):
        if key not in CLIENT_METRICS_KEYS:
            message = f"Unknown client metrics configuration: {key:.100}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    read_subscription(overrides)


def _read_interval(text: str) -> int:
    try:
        interval_ms = CLIENT_METRICS_KEYS[_INTERVAL].parse(text.strip())
    except ValueError:
        message = f"Invalid value {text:.100} for configuration {_INTERVAL}: Not a number"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None
    if not isinstance(interval_ms, int) or not _INTERVAL_MS_MIN <= interval_ms <= _INTERVAL_MS_MAX:
        message = (
            f"Invalid value {interval_ms} for {_INTERVAL}, interval must be between "
            f"{_INTERVAL_MS_MIN} and {_INTERVAL_MS_MAX} (1 hour)"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return interval_ms


def _read_match(patterns: Iterable[str]) -> dict[str, re2._Regexp]:
    """The pattern of each attribute; of one that is named twice the later."""
    found = {}
    for text in patterns:
        name, _, pattern = (part.strip() for part in text.partition("="))
        if name not in ATTRIBUTES or not pattern or "=" in pattern:
            raise _illegal(text)
        found[name] = _compiled(text, pattern)
    return found


def _compiled(text: str, pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise _illegal(text) from None


def _illegal(text: str) -> KafkaError:
    message = f"Illegal client matching pattern: {text:.200}"
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
