"""Configs of a topic: Kafka's keys, each once, and the values in force for a topic.

An attribute of `TopicConfig` is a key with dots as underscores. A topic's overrides come first,
then the broker's own keys (`topic_defaults`), then Kafka's default. Times are milliseconds, sizes
are bytes. Overrides are checked before they become records (`validate_topic_config`). A reader of
an image (`effective`) ignores keys that it does not know.

A key is defined once, as a field with its kind, default and description. The kind decides the type
in DescribeConfigs, the parser and the sentence about valid values in errors. Keys of features that
do not exist here, such as tiered storage, are known but keep their defaults: a client that sets
them all to what it read must not fail, and a value that would promise something is refused.

Source: the topic configuration reference of Apache Kafka 4; KIP-1030 for its bounds.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import INT_MAX, LONG_MAX
from raftctl.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.metadata.image import MetadataImage

Value = bool | int | float | str | tuple[str, ...]

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


class ConfigType(enum.IntEnum):
    """Type of a config, as DescribeConfigs numbers it."""

    UNKNOWN = 0
    """Of what has no type, such as the level of a logger."""
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class _Kind:
    """Kind of value: `parse` raises ValueError, `rule` describes the valid values."""

    type: ConfigType
    parse: Callable[[str], Value]
    rule: str


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One key of a topic, or of a resource whose keys are parsed alike: brokers and groups."""

    name: str
    type: ConfigType
    default: Value
    parse: Callable[[str], Value]
    """Text to value; raises ValueError."""
    rule: str
    """Description of the valid values."""
    broker_keys: tuple[tuple[str, int], ...]
    """(broker key, factor): the first that the broker sets, times the factor, is its default."""
    description: str


def text_of(value: Value) -> str:
    """Return the value as it is written in a config; parsing it gives the same value again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


# --- kinds ----------------------------------------------------------------------------------------


def _integer(low: int, high: int, *, zero: bool = True) -> _Kind:
    """Return the kind of integers between inclusive bounds; INT or LONG by the greatest."""

    def parse(text: str) -> int:
        value = int(_number(text))
        if not low <= value <= high or (value == 0 and not zero):
            raise ValueError(text)
        return value

    bounds = f"at least {low}" if high in (INT_MAX, LONG_MAX) else f"between {low} and {high}"
    rule = f"an integer {bounds}" if zero else f"an integer {bounds} other than 0"
    return _Kind(ConfigType.LONG if high > INT_MAX else ConfigType.INT, parse, rule)


def _number(text: str) -> str:
    """Return the text; ValueError for a number of Python that Java refuses, such as `1_000`."""
    if not re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", text):
        raise ValueError(text)
    return text


def _int(low: int, high: int = INT_MAX) -> _Kind:
    return _integer(low, high)


def _long(low: int) -> _Kind:
    return _integer(low, LONG_MAX)


def _parse_ratio(text: str) -> float:
    """Return a number between 0 and 1, inclusive."""
    value = float(_number(text))
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def _parse_flag(text: str) -> bool:
    """Return the flag, in any case of letters. Raises KeyError for another word."""
    return {"true": True, "false": False}[text.lower()]


def _only_false(text: str) -> bool:
    """Return False; ValueError for true, which would enable a feature that does not exist."""
    if _parse_flag(text):
        raise ValueError(text)
    return False


def _choice(*words: str) -> _Kind:
    """Return the kind of one word of these; case matters, as in Kafka."""

    def parse(text: str) -> str:
        return words[words.index(text)]

    return _Kind(ConfigType.STRING, parse, "one of " + ", ".join(words))


def _choices(*words: str) -> _Kind:
    """Return the kind of lists of these words, each at most once; the list may be empty."""

    def parse(text: str) -> tuple[str, ...]:
        found = _split(text)
        if len(set(found)) < len(found) or not all(word in words for word in found):
            raise ValueError(text)
        return found

    return _Kind(ConfigType.LIST, parse, "a list of " + ", ".join(words))


def _split(text: str) -> tuple[str, ...]:
    """Return the items of a list, without blanks and empty items."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _parse_throttled(text: str) -> tuple[str, ...]:
    """Return `partition:broker` pairs as they are written, or `*` for all (KIP-73)."""
    items = _split(text)
    pairs = [item.split(":") for item in items]
    if items != ("*",) and not all(
        len(p) == 2 and p[0].isdigit() and p[1].isdigit() for p in pairs
    ):
        raise ValueError(text)
    return items


_RATIO = _Kind(ConfigType.DOUBLE, _parse_ratio, "a number between 0 and 1")
_FLAG = _Kind(ConfigType.BOOLEAN, _parse_flag, "true or false")
_NO_FLAG = _Kind(ConfigType.BOOLEAN, _only_false, "false: there is no tiered storage")
_THROTTLED = _Kind(ConfigType.LIST, _parse_throttled, "a list of partition:broker, or *")
_GZIP_LEVEL = _integer(-1, 9, zero=False)


_NO_TIERS = "there is no tiered storage"
_WITHOUT_EFFECT = {
    "compression.lz4.level": "it must be 9: what packs lz4 here has no levels",
    "local.retention.bytes": f"it must be -2: {_NO_TIERS}",
    "local.retention.ms": f"it must be -2: {_NO_TIERS}",
    "preallocate": "it must be false: files of segments grow as they are written, never ahead",
    "remote.copy.lag.bytes": f"it must be 0: {_NO_TIERS}",
    "remote.copy.lag.ms": f"it must be 0: {_NO_TIERS}",
    "remote.log.copy.disable": f"it must be false: {_NO_TIERS}",
    "remote.log.delete.on.disable": f"it must be false: {_NO_TIERS}",
    "remote.storage.enable": f"it must be false: {_NO_TIERS}",
}
"""Known keys without an effect here, with the reason for errors."""


def _key(kind: _Kind, default: Value, description: str, *broker_keys: str | tuple[str, int]) -> Any:
    """Return a field of `TopicConfig` that carries its own definition.

    `broker_keys` are the broker's defaults of the key, the finest first; one with a coarser unit is
    paired with the factor to the topic key's.
    """
    pairs = tuple((key, 1) if isinstance(key, str) else key for key in broker_keys)
    return dataclasses.field(default=default, metadata={"key": (kind, default, description, pairs)})


# --- keys -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Values in force for a topic.

    Frozen and compared by value: partitions of equal topics share one, and a change is found by
    comparison. Times are milliseconds, sizes bytes.
    """

    cleanup_policy: tuple[str, ...] = _key(
        _choices("delete", "compact"),
        ("delete",),
        "What happens to old segments: deleted by age and size, or compacted by key, or both.",
        "log.cleanup.policy",
    )
    compression_gzip_level: int = _key(
        _GZIP_LEVEL, -1, "The level, if the topic stores gzip.", "compression.gzip.level"
    )
    compression_lz4_level: int = _key(
        _int(1, 17), 9, "The level, if the topic stores lz4.", "compression.lz4.level"
    )
    compression_type: str = _key(
        _choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "How batches are stored; `producer` keeps what the producer chose.",
        "compression.type",
    )
    compression_zstd_level: int = _key(
        _int(-131_072, 22), 3, "The level, if the topic stores zstd.", "compression.zstd.level"
    )
    delete_retention_ms: int = _key(
        _long(0),
        _DAY_MS,
        "How long a compacted topic keeps a tombstone.",
        "log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = _key(
        _long(0),
        _MINUTE_MS,
        "How long the files of a deleted segment stay on disk.",
        "log.segment.delete.delay.ms",
    )
    flush_messages: int = _key(
        _long(1),
        LONG_MAX,
        "Records after which the log is forced to disk, before the last of them is acknowledged.",
        "log.flush.interval.messages",
    )
    flush_ms: int = _key(
        _long(0),
        LONG_MAX,
        "Time after which the log is forced to disk.",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    )
    flush_on_ack: bool = _key(
        _FLAG,
        False,
        "Whether acks=all means that every in-sync replica has flushed the records to its disk.",
        "flush.on.ack",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _key(
        _THROTTLED, (), "Replicas whose fetching is throttled."
    )
    index_interval_bytes: int = _key(
        _int(0),
        4_096,
        "About one entry of the offset index per so many bytes of log.",
        "log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _key(
        _THROTTLED, (), "Replicas that are served at a throttled rate."
    )
    local_retention_bytes: int = _key(
        _long(-2), -2, "Size kept on the broker with tiered storage; -2: `retention.bytes`."
    )
    local_retention_ms: int = _key(
        _long(-2), -2, "Age kept on the broker with tiered storage; -2: `retention.ms`."
    )
    max_compaction_lag_ms: int = _key(
        _long(1),
        LONG_MAX,
        "The longest time that a record may stay uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = _key(
        _int(0), 1_048_588, "The largest record batch that is accepted.", "message.max.bytes"
    )
    message_timestamp_after_max_ms: int = _key(
        _long(0),
        _HOUR_MS,
        "How far a record's time may be ahead of the broker's.",
        "log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = _key(
        _long(0),
        LONG_MAX,
        "How far a record's time may be behind the broker's.",
        "log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = _key(
        _choice("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whether a record keeps its client's time or gets the broker's.",
        "log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = _key(
        _RATIO,
        0.5,
        "The share of uncompacted log at which compaction begins.",
        "log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = _key(
        _long(0),
        0,
        "The shortest time that a record stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = _key(
        _int(1),
        1,
        "Replicas that must be in sync for a produce with acks=all.",
        "min.insync.replicas",
    )
    preallocate: bool = _key(
        _FLAG, False, "Whether a new segment gets its full size at once.", "log.preallocate"
    )
    remote_copy_lag_bytes: int = _key(
        _long(-1), 0, "Bytes that stay on the broker before they are copied to tiered storage."
    )
    remote_copy_lag_ms: int = _key(
        _long(-1), 0, "Time that records stay on the broker before they are copied."
    )
    remote_log_copy_disable: bool = _key(_NO_FLAG, False, "Stops copying to tiered storage.")
    remote_log_delete_on_disable: bool = _key(
        _NO_FLAG, False, "Deletes what is in tiered storage when it is disabled."
    )
    remote_storage_enable: bool = _key(_NO_FLAG, False, "Whether the topic uses tiered storage.")
    retention_bytes: int = _key(
        _long(-1),
        -1,
        "The size of a partition above which its oldest segments are deleted; -1: no limit.",
        "log.retention.bytes",
    )
    retention_ms: int = _key(
        _long(-1),
        7 * _DAY_MS,
        "The age at which a segment is deleted; -1: never.",
        "log.retention.ms",
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    )
    segment_bytes: int = _key(
        _int(1 << 20), 1 << 30, "The size at which a new segment begins.", "log.segment.bytes"
    )
    segment_index_bytes: int = _key(
        _int(4), 10 << 20, "The largest index of a segment.", "log.index.size.max.bytes"
    )
    segment_jitter_ms: int = _key(
        _long(0),
        0,
        "At most so much is taken from `segment.ms` at random, so that not all roll at once.",
        "log.roll.jitter.ms",
        ("log.roll.jitter.hours", _HOUR_MS),
    )
    segment_ms: int = _key(
        _long(1),
        7 * _DAY_MS,
        "The age at which a new segment begins.",
        "log.roll.ms",
        ("log.roll.hours", _HOUR_MS),
    )
    unclean_leader_election_enable: bool = _key(
        _FLAG,
        False,
        "Whether a replica outside the in-sync set may lead: available, but loses records.",
        "unclean.leader.election.enable",
    )


def _define(field: dataclasses.Field[Any]) -> TopicKey:
    """Return the definition that a field of `TopicConfig` carries."""
    kind, default, description, broker_keys = field.metadata["key"]
    name = field.name.replace("_", ".")
    return TopicKey(name, kind.type, default, kind.parse, kind.rule, broker_keys, description)


TOPIC_KEYS: Mapping[str, TopicKey] = {
    key.name: key for key in map(_define, dataclasses.fields(TopicConfig))
}
"""Every key of a topic, by name, in alphabetical order."""


def integer_key(name: str, low: int, high: int, default: int, description: str) -> TopicKey:
    """Return a key of another resource than a topic, an integer between inclusive bounds.

    It has no broker keys: its default is the same on all brokers.
    """
    kind = _integer(low, high)
    return TopicKey(name, kind.type, default, kind.parse, kind.rule, (), description)


# --- what is in force -----------------------------------------------------------------------------


def topic_defaults(broker: object) -> TopicConfig:
    """Return the values of a topic without overrides on a broker with these settings.

    `broker` is any object whose attributes are broker keys with dots as underscores. A key that it
    lacks, or has as None, keeps Kafka's default.
    """
    values: dict[str, Value] = {}
    for key in TOPIC_KEYS.values():
        for broker_key, factor in key.broker_keys:
            value = getattr(broker, broker_key.replace(".", "_"), None)
            if value is not None:
                # A factor turns hours into milliseconds; all negative ages mean "for ever".
                values[_attribute(key.name)] = max(-1, value * factor) if factor > 1 else value
                break
    return TopicConfig(**_untyped(values))


def dynamic_defaults(overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """Return the values of a topic without overrides, with these dynamic broker keys.

    The finest key wins: `log.retention.ms` before `log.retention.minutes`, as in the broker's file.
    Without overrides the defaults themselves are returned, not a copy of them.
    """
    values: dict[str, Value] = {}
    for key in TOPIC_KEYS.values() if overrides else ():
        for broker_key, factor in key.broker_keys:
            if broker_key in overrides:
                values[_attribute(key.name)] = scaled(key, overrides[broker_key], factor)
                break
    return dataclasses.replace(defaults, **_untyped(values)) if values else defaults


def scaled(key: TopicKey, text: str, factor: int) -> Value:
    """Return the value of a broker key in the topic key's unit; ages below 0 become -1.

    Raises ValueError, or KeyError for a flag, if the text is invalid.
    """
    value = key.parse(text.strip())
    return max(-1, value * factor) if factor > 1 and isinstance(value, int) else value


def topic_config(
    image: MetadataImage, topic: str, static: TopicConfig, broker_id: int | None = None
) -> TopicConfig:
    """Return the values in force for a topic.

    In order of precedence: the topic's overrides in the image, the dynamic keys of this broker,
    those of all brokers, then `static`, the values of the broker's file. Without `broker_id` the
    keys of no single broker count, as on the controller.
    """
    defaults = broker_topic_defaults(image, static, broker_id)
    return effective(image.config(TOPIC_RESOURCE, topic), defaults)


def broker_topic_defaults(
    image: MetadataImage, static: TopicConfig, broker_id: int | None = None
) -> TopicConfig:
    """Return the values of a topic without overrides; see `topic_config`."""
    defaults = dynamic_defaults(image.config(BROKER_RESOURCE, ""), static)
    if broker_id is None:
        return defaults
    return dynamic_defaults(image.config(BROKER_RESOURCE, str(broker_id)), defaults)


def effective(overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """Return the values of a topic with these overrides. Unknown keys are ignored.

    A newer controller may have written them, and the topic must still be served. Raises
    KafkaError(INVALID_CONFIG) for an invalid value.
    """
    if not overrides:
        return defaults
    values = {_attribute(name): _parse(name, overrides[name]) for name in _known(overrides)}
    return dataclasses.replace(defaults, **_untyped(values))


def validate_topic_config(overrides: Mapping[str, str | None], defaults: TopicConfig) -> None:
    """Check overrides before they become records; a value of None is a key without one.

    Raises KafkaError(INVALID_CONFIG), which names the key and the valid values, for an unknown key,
    an invalid value, a value that has no effect here, and values that contradict each other.
    """
    values: dict[str, str] = {}
    for name in sorted(overrides):
        value = overrides[name]
        if name not in TOPIC_KEYS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} has no value")
        values[name] = value
    config = effective(values, defaults)
    for name in values:
        refuse_without_effect(name, TOPIC_KEYS[name], getattr(config, _attribute(name)))
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) is above "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )


def refuse_without_effect(name: str, key: TopicKey, value: Value) -> None:
    """Raise KafkaError(INVALID_CONFIG) for a value that would promise what does not happen.

    Only a new value is refused. One that a former release accepted must stay readable, or its topic
    could not be served. `name` is the key as it was given, `key` the topic's.
    """
    if key.name in _WITHOUT_EFFECT and value != key.default:
        shown = text_of(value)
        message = f"Invalid value {shown!r} for {name}: {_WITHOUT_EFFECT[key.name]}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _known(overrides: Mapping[str, str]) -> list[str]:
    """Return the keys that this release knows, in alphabetical order."""
    return [name for name in sorted(overrides) if name in TOPIC_KEYS]


def _parse(name: str, text: str) -> Value:
    """Return the value of a topic's key. Raises KafkaError(INVALID_CONFIG)."""
    key = TOPIC_KEYS[name]
    try:
        return key.parse(text.strip())
    except (ValueError, KeyError):
        message = f"Invalid value {text!r:.100} for {name}: it must be {key.rule}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _untyped(values: dict[str, Value]) -> dict[str, Any]:
    """Return the arguments of a `TopicConfig`: parsers give the types that a dict cannot show."""
    return dict(values)
