"""Configs that change while the cluster runs (row C9), with Kafka's error for invalid input.

The changes of a resource are made all or none; resources of a request succeed or fail on their own.
Two configs decide which replica may lead: `min.insync.replicas` and
`unclean.leader.election.enable`. Elections that follow from a change of these stand in the same
batch. A reader would otherwise see partitions that contradict their topic's configs.

Sources: KIP-226, KIP-339; Kafka's `ConfigurationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._result import admin_result
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.client_metrics import validate_client_metrics
from raftctl.metadata.configs.dynamic import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    validate_broker_config,
    validate_group_config,
    validate_topic_overrides,
)
from raftctl.metadata.configs.topic import TOPIC_KEYS, ConfigType, text_of
from raftctl.metadata.features import eligible_leaders_enabled
from raftctl.metadata.image import MetadataDelta
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
)
from raftctl.metadata.requests.admin import AlterOperation, ItemOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller._result import ControllerResult
    from raftctl.controller.partitions import PartitionReconciler
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import PartitionChangeRecord, Record
    from raftctl.metadata.requests.admin import AlterConfigsRequest, ConfigAlteration, ConfigChange

_MIN_ISR = "min.insync.replicas"
_VALUE_LENGTH_MAX = 32_767
"""Characters of a config's value."""


def alter_configs(
    image: MetadataImage,
    request: AlterConfigsRequest,
    config: ControllerConfig,
    reconciler: PartitionReconciler,
) -> ControllerResult:
    """Change the configs of each resource on its own.

    Errors of a resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST if it is named
    twice, has no configs, is a broker that is not registered, or a broker's key cannot change or
    takes no such value, REQUEST_TIMED_OUT while partitions have yet to follow another change.
    """
    named = Counter((item.resource_type, item.resource_name) for item in request.resources)
    records: list[Record] = []
    outcomes = []
    for resource in request.resources:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource is named twice")
            changes = _alter(image, resource, config)
            _check_rules_applied(image, changes, reconciler)
        except KafkaError as error:
            outcomes.append(ItemOutcome(error.code, error.message))
            continue
        records += changes
        outcomes.append(ItemOutcome())
    if request.validate_only:
        records = []
    elections = _elections(image, records, reconciler)
    return admin_result([*records, *elections], outcomes)


def _alter(
    image: MetadataImage, resource: ConfigAlteration, config: ControllerConfig
) -> list[ConfigRecord]:
    """Return the records that change one resource; none if all values are as before.

    Raises KafkaError; see `alter_configs`.
    """
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


def _check_rules_applied(
    image: MetadataImage, changes: Iterable[ConfigRecord], reconciler: PartitionReconciler
) -> None:
    """Refuse a second change of the minimum while partitions have yet to follow the first.

    A partition shows at most one change that it has not followed: its eligible leaders are those of
    the old minimum. After two changes they could be stale without any trace.
    """
    changed = any(change.key == _MIN_ISR for change in changes)
    if changed and reconciler.rules_pending and eligible_leaders_enabled(image):
        message = f"Partitions have yet to follow the last change of {_MIN_ISR}: try again soon"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)


def _check_resource(image: MetadataImage, resource: ConfigAlteration) -> None:
    """Raise KafkaError for a resource that has no configs; see `alter_configs`.

    A group need not exist: its configs hold from its first member on. A subscription to metrics of
    clients begins with its configs.
    """
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
    elif kind != CLIENT_METRICS_RESOURCE:
        message = f"Configs of resource type {kind} cannot be altered"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _validate(
    image: MetadataImage,
    resource: ConfigAlteration,
    overrides: Mapping[str, str],
    config: ControllerConfig,
) -> None:
    for key in sorted(overrides):
        if len(overrides[key]) > _VALUE_LENGTH_MAX:
            message = f"The value of {key} is longer than {_VALUE_LENGTH_MAX} characters"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if resource.resource_type == TOPIC_RESOURCE:
        for_all = image.config(BROKER_RESOURCE, "")
        validate_topic_overrides(overrides, for_all, config.topic_defaults)
    elif resource.resource_type == BROKER_RESOURCE:
        _validate_of_broker(overrides, one_broker=bool(resource.resource_name))
    elif resource.resource_type == CLIENT_METRICS_RESOURCE:
        validate_client_metrics(resource.resource_name, overrides)
    else:
        validate_group_config(overrides, config.group_keys)


def _validate_of_broker(overrides: Mapping[str, str], *, one_broker: bool) -> None:
    """Validate a broker's overrides; an error is INVALID_REQUEST, as from Kafka's brokers."""
    try:
        validate_broker_config(overrides, one_broker=one_broker)
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error


# --- operations -----------------------------------------------------------------------------------


def _definition(resource_type: int, key: str, defaults: TopicConfig) -> tuple[bool, str]:
    """Return whether the key is a list, and its value in force without an override.

    Lists of client metrics are set as a whole, as with Apache Kafka.
    """
    if resource_type == TOPIC_RESOURCE and key in TOPIC_KEYS:
        default = text_of(getattr(defaults, key.replace(".", "_")))
        return TOPIC_KEYS[key].type == ConfigType.LIST, default
    if resource_type == BROKER_RESOURCE and key in BROKER_KEYS:
        return BROKER_KEYS[key].type == ConfigType.LIST, text_of(BROKER_KEYS[key].default)
    return False, ""


def _change(values: dict[str, str], change: ConfigChange, definition: tuple[bool, str]) -> None:
    """Apply one change to `values`, in place. The caller validates keys and values at the end.

    Values depend on each other, and a request may set two of them that are valid only together.
    """
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
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    values[key] = ",".join(items)


def _items(text: str) -> list[str]:
    """Return the items of a list as it is written, without blanks and empty items."""
    return [item.strip() for item in text.split(",") if item.strip()]


# --- elections ------------------------------------------------------------------------------------


def _elections(
    image: MetadataImage, records: Sequence[Record], reconciler: PartitionReconciler
) -> list[PartitionChangeRecord]:
    """Return the elections that follow from the changed configs.

    A topic's follow at once. For a cluster-wide change they are the first slice of a pass over all
    partitions.
    """
    configs = [record for record in records if isinstance(record, ConfigRecord)]
    changed = [record for record in configs if record.key in CLUSTER_WIDE]
    if not changed:
        return []
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record, image.offset)
    after = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    if any(record.resource_type == BROKER_RESOURCE for record in changed):
        return reconciler.reconcile_all(after)
    names = dict.fromkeys(record.resource_name for record in changed)
    topics = [topic for topic in map(after.topics.by_name, names) if topic is not None]
    return reconciler.reconcile_topics(after, topics)
