"""DescribeConfigs: what is in force for topics and brokers, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.discovery import unknown_name
from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import INT_MAX
from raftctl.metadata.configs.dynamic import BROKER_KEYS, GROUP_KEYS
from raftctl.metadata.configs.topic import TOPIC_KEYS, ConfigType, scaled, text_of, topic_defaults
from raftctl.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pydantic.fields import FieldInfo

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.metadata.configs.topic import TopicKey

    _Entry = wire.DescribeConfigsResourceResult

# The sources of Apache Kafka's DescribeConfigs; 6 and 7 are of loggers and client metrics.
_DYNAMIC_TOPIC_CONFIG = 1
_DYNAMIC_BROKER_CONFIG = 2
_DYNAMIC_DEFAULT_BROKER_CONFIG = 3
_STATIC_BROKER_CONFIG = 4
_DEFAULT_CONFIG = 5
_GROUP_CONFIG = 8


def handle(
    context: ApiContext, request: Request[wire.DescribeConfigsRequest]
) -> wire.DescribeConfigsResponse:
    """The configs of each resource, all or those asked for."""
    body = request.body
    return {
        "results": [
            _result(
                context,
                resource,
                synonyms=body["include_synonyms"],
                documentation=body.get("include_documentation", False),
            )
            for resource in body["resources"]
        ]
    }


def topic_config_entries(
    context: ApiContext, overrides: Mapping[str, str], keys: Collection[str] | None
) -> list[wire.DescribeConfigsResourceResult]:
    """The configs of a topic with these overrides; `keys` None: all of them."""
    return list(_topic_entries(context, overrides, keys))


def _result(
    context: ApiContext,
    resource: wire.DescribeConfigsResource,
    *,
    synonyms: bool,
    documentation: bool,
) -> wire.DescribeConfigsResult:
    try:
        entries = list(_entries(context, resource))
    except KafkaError as error:
        return _failed(resource, error)
    for entry in entries:
        if not synonyms:
            entry["synonyms"] = ()
        if not documentation:
            entry["documentation"] = None
    return _outcome(resource, ErrorCode.NONE, "", entries)


def _entries(context: ApiContext, resource: wire.DescribeConfigsResource) -> Iterator[_Entry]:
    kind, name, keys = (
        resource["resource_type"],
        resource["resource_name"],
        resource["configuration_keys"],
    )
    image = context.metadata.image
    if kind == TOPIC_RESOURCE:
        if image.topics.by_name(name) is None:
            raise KafkaError(unknown_name(name), f"there is no topic {name}")
        return _topic_entries(context, image.config(kind, name), keys)
    if kind == BROKER_RESOURCE:
        # A broker knows its own file alone, so clients ask each broker for its own configs.
        if name not in ("", str(context.config.node_id)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {name} is asked at another broker")
        return _broker_entries(context, keys) if name else _all_brokers_entries(context, keys)
    if kind == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the group id is empty")
        return _group_entries(image.config(kind, name), keys)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no configs of resource type {kind}")


def _topic_entries(
    context: ApiContext, overrides: Mapping[str, str], keys: Collection[str] | None
) -> Iterator[_Entry]:
    for name, key in TOPIC_KEYS.items():
        if keys is not None and name not in keys:
            continue
        found = list(_topic_synonyms(context, overrides, key))
        synonyms = [synonym for synonym, _ in found]
        entry = _entry(name, key.type, key.description, synonyms, read_only=False)
        entry["value"] = found[0][1]
        yield entry


def _topic_synonyms(
    context: ApiContext, overrides: Mapping[str, str], key: TopicKey
) -> Iterator[tuple[wire.DescribeConfigsSynonym, str | None]]:
    """(synonym, its value in the unit of the topic's key); a broker key has a unit of its own."""
    # Each overrides those after it: the topic, this broker, all brokers, the file, the default.
    if key.name in overrides:
        value = text_of(key.parse(overrides[key.name].strip()))
        yield _synonym(key.name, value, _DYNAMIC_TOPIC_CONFIG), value
    for source, values in _dynamic_broker_configs(context):
        for broker_key, factor in key.broker_keys:
            if broker_key in values:
                value = text_of(scaled(key, values[broker_key], factor))
                yield _synonym(broker_key, values[broker_key], source), value
    static = getattr(topic_defaults(context.config), key.name.replace(".", "_"))
    for broker_key, _ in key.broker_keys:
        attribute = broker_key.replace(".", "_")
        if attribute in context.config.model_fields_set:
            own = _broker_text(getattr(context.config, attribute))
            yield _synonym(broker_key, own, _STATIC_BROKER_CONFIG), text_of(static)
    default_name = key.broker_keys[0][0] if key.broker_keys else key.name
    default = text_of(key.default)
    yield _synonym(default_name, default, _DEFAULT_CONFIG), default


def _dynamic_broker_configs(context: ApiContext) -> list[tuple[int, Mapping[str, str]]]:
    """(source, overrides) of this broker, then of all."""
    image = context.metadata.image
    own = image.config(BROKER_RESOURCE, str(context.config.node_id))
    shared = image.config(BROKER_RESOURCE, "")
    return [(_DYNAMIC_BROKER_CONFIG, own), (_DYNAMIC_DEFAULT_BROKER_CONFIG, shared)]


def _broker_entries(context: ApiContext, keys: Collection[str] | None) -> Iterator[_Entry]:
    """The keys of the broker's file, then those that only change while it runs."""
    config = context.config
    dynamic = _dynamic_broker_configs(context)
    for attribute, field in type(config).model_fields.items():
        name = attribute.replace("_", ".")
        if keys is not None and name not in keys:
            continue
        synonyms = [_synonym(name, one[name], source) for source, one in dynamic if name in one]
        value = getattr(config, attribute)
        if name == "advertised.listeners" and not value:
            value = _advertised(context)
        is_set = attribute in config.model_fields_set
        source = _STATIC_BROKER_CONFIG if is_set else _DEFAULT_CONFIG
        synonyms.append(_synonym(name, _broker_text(value), source))
        # A key of the file that cannot change while the broker runs is shown as read-only.
        read_only = name not in BROKER_KEYS
        kind = _broker_type(value, field)
        yield _entry(name, kind, field.description, synonyms, read_only=read_only)
    for name, key in BROKER_KEYS.items():
        if name.replace(".", "_") in type(config).model_fields or (
            keys is not None and name not in keys
        ):
            continue
        synonyms = [_synonym(name, one[name], source) for source, one in dynamic if name in one]
        synonyms.append(_synonym(name, text_of(key.default), _DEFAULT_CONFIG))
        yield _entry(name, key.type, key.description, synonyms, read_only=False)


def _all_brokers_entries(context: ApiContext, keys: Collection[str] | None) -> Iterator[_Entry]:
    """What is set for all brokers, and nothing else."""
    overrides = context.metadata.image.config(BROKER_RESOURCE, "")
    for name in sorted(overrides):
        key = BROKER_KEYS.get(name)
        if key is not None and (keys is None or name in keys):
            synonyms = [_synonym(name, overrides[name], _DYNAMIC_DEFAULT_BROKER_CONFIG)]
            yield _entry(name, key.type, key.description, synonyms, read_only=False)


def _group_entries(overrides: Mapping[str, str], keys: Collection[str] | None) -> Iterator[_Entry]:
    for name, key in GROUP_KEYS.items():
        if keys is not None and name not in keys:
            continue
        synonyms = [_synonym(name, text_of(key.default), _DEFAULT_CONFIG)]
        if name in overrides:
            synonyms.insert(0, _synonym(name, overrides[name], _GROUP_CONFIG))
        yield _entry(name, key.type, key.description, synonyms, read_only=False)


def _synonym(name: str, value: str | None, source: int) -> wire.DescribeConfigsSynonym:
    return {"name": name, "value": value, "source": source}


def _entry(
    name: str,
    kind: ConfigType,
    documentation: str | None,
    synonyms: list[wire.DescribeConfigsSynonym],
    *,
    read_only: bool,
) -> _Entry:
    """The first synonym is what is in force."""
    return {
        "name": name,
        "value": synonyms[0]["value"],
        "read_only": read_only,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,  # no key holds a secret
        "synonyms": synonyms,
        "config_type": kind,
        "documentation": documentation,
    }


def _broker_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return text_of(value)
    if isinstance(value, dict):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _advertised(context: ApiContext) -> tuple[str, ...]:
    """The registered endpoints: a port that the system chose is known only from them."""
    broker = context.metadata.image.brokers.get(context.config.node_id)
    endpoints = () if broker is None else broker.endpoints
    return tuple(f"{one.listener}://{one.host}:{one.port}" for one in endpoints)


def _broker_type(value: Any, field: FieldInfo) -> ConfigType:
    """A whole number is of the type that its bounds fit in."""
    highest = [limit for one in field.metadata if (limit := getattr(one, "le", None)) is not None]
    fits = bool(highest) and min(highest) <= INT_MAX
    whole = ConfigType.INT if fits else ConfigType.LONG
    kinds = {bool: ConfigType.BOOLEAN, int: whole, float: ConfigType.DOUBLE}
    composite = ConfigType.LIST if isinstance(value, tuple | dict) else ConfigType.STRING
    return kinds.get(type(value), composite)


def _failed(
    resource: wire.DescribeConfigsResource, error: KafkaError
) -> wire.DescribeConfigsResult:
    return _outcome(resource, error.code, error.message, [])


def _outcome(
    resource: wire.DescribeConfigsResource,
    error: ErrorCode,
    message: str | None,
    configs: list[_Entry],
) -> wire.DescribeConfigsResult:
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
        "configs": configs,
    }
