"""DescribeConfigs: what is in force for topics and brokers, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from raftctl.metadata.topic_config import (
    TOPIC_KEYS,
    ConfigType,
    effective,
    text_of,
    topic_defaults,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from broker.apis.context import Answer, ApiContext
    from broker.protocol.codec import Request
    from raftctl.config import NodeConfig

_DYNAMIC_TOPIC_CONFIG = 1
_STATIC_BROKER_CONFIG = 4
_DEFAULT_CONFIG = 5


def handle(context: ApiContext, request: Request) -> Answer:
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


def refuse(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The same error for each resource."""
    return {"results": [_failed(resource, error) for resource in request.body["resources"]]}


def topic_config_entries(
    config: NodeConfig, overrides: Mapping[str, str], keys: Collection[str] | None
) -> list[dict[str, Any]]:
    """The configs of a topic with these overrides; `keys` None: all of them."""
    return list(_topic_entries(config, overrides, keys))


def _result(
    context: ApiContext, resource: dict[str, Any], *, synonyms: bool, documentation: bool
) -> dict[str, Any]:
    try:
        entries = list(_entries(context, resource))
    except KafkaError as error:
        return _failed(resource, error)
    for entry in entries:
        if not synonyms:
            entry["synonyms"] = ()
        if not documentation:
            entry["documentation"] = None
    return _outcome(resource, ErrorCode.NONE, None, entries)


def _entries(context: ApiContext, resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind, name, keys = (
        resource["resource_type"],
        resource["resource_name"],
        resource["configuration_keys"],
    )
    if kind == TOPIC_RESOURCE:
        if context.metadata.image.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _topic_entries(context.config, context.metadata.image.config(kind, name), keys)
    if kind == BROKER_RESOURCE:
        if name not in ("", str(context.config.node_id)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {name} is asked at another broker")
        # The resource without a name holds the dynamic defaults of all brokers: there are none.
        return _broker_entries(context.config, keys) if name else iter(())
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no configs of resource type {kind}")


def _topic_entries(
    config: NodeConfig, overrides: Mapping[str, str], keys: Collection[str] | None
) -> Iterator[dict[str, Any]]:
    defaults = topic_defaults(config)
    in_force = effective(overrides, defaults)
    for name, key in TOPIC_KEYS.items():
        if keys is not None and name not in keys:
            continue
        attribute = name.replace(".", "_")
        synonyms = []
        if name in overrides:
            synonyms.append(_synonym(name, text_of(getattr(in_force, attribute)), 1))
        for broker_key, _ in key.broker_keys:
            if broker_key.replace(".", "_") in config.model_fields_set:
                value = text_of(getattr(defaults, attribute))
                synonyms.append(_synonym(broker_key, value, _STATIC_BROKER_CONFIG))
        default_name = key.broker_keys[0][0] if key.broker_keys else name
        synonyms.append(_synonym(default_name, text_of(key.default), _DEFAULT_CONFIG))
        yield _entry(name, key.type, key.description, synonyms, read_only=False)


def _broker_entries(config: NodeConfig, keys: Collection[str] | None) -> Iterator[dict[str, Any]]:
    for attribute, field in type(config).model_fields.items():
        name = attribute.replace("_", ".")
        if keys is not None and name not in keys:
            continue
        value = getattr(config, attribute)
        is_set = attribute in config.model_fields_set
        source = _STATIC_BROKER_CONFIG if is_set else _DEFAULT_CONFIG
        synonyms = [_synonym(name, _broker_text(value), source)]
        yield _entry(name, _broker_type(value), field.description, synonyms, read_only=True)


def _synonym(name: str, value: str | None, source: int) -> dict[str, Any]:
    return {"name": name, "value": value, "source": source}


def _entry(
    name: str,
    kind: ConfigType,
    documentation: str | None,
    synonyms: list[dict[str, Any]],
    *,
    read_only: bool,
) -> dict[str, Any]:
    """The first synonym is what is in force."""
    return {
        "name": name,
        "value": synonyms[0]["value"],
        "read_only": read_only,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
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


def _broker_type(value: Any) -> ConfigType:
    kinds = {bool: ConfigType.BOOLEAN, int: ConfigType.LONG, float: ConfigType.DOUBLE}
    composite = ConfigType.LIST if isinstance(value, tuple | dict) else ConfigType.STRING
    return kinds.get(type(value), composite)


def _failed(resource: dict[str, Any], error: KafkaError) -> dict[str, Any]:
    return _outcome(resource, error.code, error.message, [])


def _outcome(
    resource: dict[str, Any],
    error: ErrorCode,
    message: str | None,
    configs: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
        "configs": configs,
    }
