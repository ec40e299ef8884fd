"""Configs that change while the cluster runs (row C9), with Apache Kafka's error for bad input.

The changes of a resource are made all or not at all. Where the new values say otherwise who may
lead, the elections stand in the same batch.
Sources: KIP-226, KIP-339.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._result import admin_result
from raftctl.controller.partitions import TopicRules, availability, change_record, settled
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.dynamic import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    validate_broker_config,
    validate_group_config,
    validate_topic_overrides,
)
from raftctl.metadata.configs.topic import TOPIC_KEYS, ConfigType, text_of
from raftctl.metadata.features import eligible_leaders_enabled
from raftctl.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataDelta
from raftctl.metadata.records import ConfigRecord
from raftctl.metadata.requests.admin import AlterOperation, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller._result import ControllerResult
    from raftctl.controller.partitions import PartitionSettler
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage, TopicImage
    from raftctl.metadata.records import PartitionChangeRecord, Record
    from raftctl.metadata.requests.admin import AlterConfigsRequest, ConfigAlteration, ConfigChange

MIN_ISR = "min.insync.replicas"
VALUE_LENGTH_MAX = 32_767
"""Of a config's value, in characters."""


def alter_configs(
    image: MetadataImage,
    request: AlterConfigsRequest,
    config: ControllerConfig,
    settler: PartitionSettler,
) -> ControllerResult:
    """Changes the configs of each resource on its own.

    Errors of a resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST if it is named
    twice, has no configs, is a broker that is not registered, or a broker's key cannot change or
    takes no such value, REQUEST_TIMED_OUT if partitions have yet to follow another change.
    """
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    records: list[Record] = []
    outcomes = []
    for resource in request.resources:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource is named twice")
            changes = _alter(image, resource, config)
            _check_settled(image, changes, settler)
        except KafkaError as error:
            outcomes.append(Outcome(error.code, error.message))
            continue
        records += changes
        outcomes.append(Outcome())
    if request.validate_only:
        records = []
    elections = _elections(image, records, config.topic_defaults, settler)
    return admin_result([*records, *elections], outcomes)


def _alter(
    image: MetadataImage, resource: ConfigAlteration, config: ControllerConfig
) -> list[ConfigRecord]:
    _check_resource(image, resource)
    before = image.config(resource.resource_type, resource.resource_name)
    after = {} if resource.replace else dict(before)
    keys = Counter(change.key for change in resource.changes)
    for change in resource.changes:
        if keys[change.key] > 1:
            message = f"{change.key} is named twice"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        definition = _definition(resource.resource_type, change.key, config.topic_defaults)
        _change(after, change, definition)
    _validate(image, resource, after, config)
    return [
        ConfigRecord(resource.resource_type, resource.resource_name, key, after.get(key))
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _check_settled(
    image: MetadataImage, changes: Iterable[ConfigRecord], settler: PartitionSettler
) -> None:
    changed = any(change.key == MIN_ISR for change in changes)
    if changed and settler.follows_rules and eligible_leaders_enabled(image):
        message = f"Partitions have yet to follow the last change of {MIN_ISR}: try again soon"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)


def _check_resource(image: MetadataImage, resource: ConfigAlteration) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC_RESOURCE:
        if image.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist")
    elif kind == BROKER_RESOURCE:
        if name and not name.isdecimal():
            message = f"{name!r} is no broker id; all brokers are meant by an empty name"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if name and int(name) not in image.brokers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {name} is not registered")
    elif kind == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A group has a name")
    else:
        message = f"Configs of resource type {kind} cannot be altered"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _validate(
    image: MetadataImage,
    resource: ConfigAlteration,
    overrides: Mapping[str, str],
    config: ControllerConfig,
) -> None:
    for key in sorted(overrides):
        if len(overrides[key]) > VALUE_LENGTH_MAX:
            message = f"The value of {key} is longer than {VALUE_LENGTH_MAX} characters"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if resource.resource_type == TOPIC_RESOURCE:
        for_all = image.config(BROKER_RESOURCE, "")
        validate_topic_overrides(overrides, for_all, config.topic_defaults)
    elif resource.resource_type == BROKER_RESOURCE:
        _validate_of_broker(overrides, one_broker=bool(resource.resource_name))
    else:
        validate_group_config(overrides, config.group_keys)


def _validate_of_broker(overrides: Mapping[str, str], *, one_broker: bool) -> None:
    """As clients know it from Apache Kafka's brokers: their configs are INVALID_REQUEST."""
    try:
        validate_broker_config(overrides, one_broker=one_broker)
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


# --- operations -----------------------------------------------------------------------------------


def _definition(resource_type: int, key: str, defaults: TopicConfig) -> tuple[bool, str]:
    """(is a list, the value in force without an override)"""
    if resource_type == TOPIC_RESOURCE and key in TOPIC_KEYS:
        default = text_of(getattr(defaults, key.replace(".", "_")))
        return TOPIC_KEYS[key].type == ConfigType.LIST, default
    if resource_type == BROKER_RESOURCE and key in BROKER_KEYS:
        return BROKER_KEYS[key].type == ConfigType.LIST, text_of(BROKER_KEYS[key].default)
    return False, ""


def _change(values: dict[str, str], change: ConfigChange, definition: tuple[bool, str]) -> None:
    """Makes one change; whether the key and its value are valid is checked of the outcome."""
    key, value = change.key, change.value
    if not key:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "A config has a name")
    if change.operation == AlterOperation.DELETE:
        values.pop(key, None)
        return
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} has no value: to reset it, delete it")
    if change.operation == AlterOperation.SET:
        values[key] = value
        return
    if change.operation not in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        message = f"The operation on {key} must be 0 to 3, not {change.operation}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    is_list, default = definition
    if not is_list:
        message = f"{key} is no list: nothing can be appended to or subtracted from it"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    items = _items(values.get(key, default))
    given = _items(value)
    if change.operation == AlterOperation.APPEND:
        items += [one for one in given if one not in items]
    else:
        items = [one for one in items if one not in given]
    values[key] = ",".join(items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


# --- elections ------------------------------------------------------------------------------------


def _elections(
    image: MetadataImage,
    records: Sequence[Record],
    defaults: TopicConfig,
    settler: PartitionSettler,
) -> list[PartitionChangeRecord]:
    """What follows, or follows first, for partitions from configs that say who may lead."""
    changed = [one for one in records if isinstance(one, ConfigRecord) and one.key in CLUSTER_WIDE]
    if not changed:
        return []
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record, image.offset)
    after = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    if any(one.resource_type == BROKER_RESOURCE for one in changed):
        return settler.rules_changed(after)
    names = dict.fromkeys(one.resource_name for one in changed)
    topics = [topic for topic in map(after.topics.by_name, names) if topic is not None]
    return settled_partitions(after, topics, defaults)


def settled_partitions(
    image: MetadataImage, topics: Iterable[TopicImage], defaults: TopicConfig
) -> list[PartitionChangeRecord]:
    """What is to change in partitions of these topics to follow the rules of the image."""
    rules = TopicRules(image, defaults)
    available = availability(image)
    records = []
    for topic in topics:
        for partition_id, partition in topic.items():
            after = settled(partition, available.replicas_of(partition), rules.of(topic.name))
            record = change_record(topic.topic_id, partition_id, partition, after)
            records += [] if record is None else [record]
    return records
