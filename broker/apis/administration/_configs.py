"""Configs of topics, brokers, groups and client metrics: described, altered, listed (row C9).

DescribeConfigs says which values are in force, and where each comes from. AlterConfigs and
IncrementalAlterConfigs are forwarded to the active controller (KIP-133, KIP-339).
ListConfigResources names what may have configs (KIP-714, KIP-1142).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, get_args

from pydantic import SecretStr

from broker.apis.administration._forwarding import forward, result_of
from broker.apis.administration._loggers import alter_levels, levels_of
from broker.apis.discovery import unknown_name
from broker.apis.handler import authorization
from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode, KafkaError
from raftctl.integers import INT_MAX
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.configs.client_metrics import CLIENT_METRICS_KEYS
from raftctl.metadata.configs.dynamic import BROKER_KEYS, GROUP_KEYS
from raftctl.metadata.configs.listeners import (
    check_listener_keys,
    connection_overrides,
    dynamic_listener_key,
    is_secret,
    listener_key_type,
)
from raftctl.metadata.configs.topic import TOPIC_KEYS, ConfigType, scaled, text_of, topic_defaults
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from raftctl.metadata.requests.admin import (
    AlterConfigsRequest,
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
    ItemOutcome,
)
from raftctl.metadata.topic_names import name_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo

    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import administration as wire
    from raftctl.metadata.configs.topic import TopicKey

    _Entry = wire.DescribeConfigsResourceResult
    _Request = wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest
    _Resource = (
        wire.AlterConfigsRequestAlterConfigsResource
        | wire.IncrementalAlterConfigsRequestAlterConfigsResource
    )

_ALTER_TIMEOUT_MS = 30_000
"""The requests name none."""
_BROKER_LOGGER = 8
_RESOURCE_TYPES = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    _BROKER_LOGGER,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)
_AUTHORIZED_AS = {
    TOPIC_RESOURCE: ResourceType.TOPIC,
    GROUP_RESOURCE: ResourceType.GROUP,
    BROKER_RESOURCE: ResourceType.CLUSTER,
    _BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS_RESOURCE: ResourceType.CLUSTER,
}
_RESOURCE_TYPES_IN_VERSION_0 = (CLIENT_METRICS_RESOURCE,)
"""Version 0 was ListClientMetricsResources."""

# The sources of Apache Kafka's DescribeConfigs.
_DYNAMIC_TOPIC_CONFIG = 1
_DYNAMIC_BROKER_CONFIG = 2
_DYNAMIC_DEFAULT_BROKER_CONFIG = 3
_STATIC_BROKER_CONFIG = 4
_DEFAULT_CONFIG = 5
_LOGGER_CONFIG = 6
_CLIENT_METRICS_CONFIG = 7
_GROUP_CONFIG = 8


def handle_describe(
    context: ApiContext, request: Request[wire.DescribeConfigsRequest]
) -> wire.DescribeConfigsResponse:
    """Answer with the configs of each resource, all or those asked for.

    Raises KafkaError(INVALID_REQUEST) for a resource type that nobody knows: as in Apache Kafka it
    refuses the whole request.
    """
    body = request.body
    for one in body["resources"]:
        kind, name = one["resource_type"], one["resource_name"]
        if kind not in _AUTHORIZED_AS:
            text = f"Unexpected resource type UNKNOWN for resource {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return {
        "results": [
            _result(
                context,
                request,
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
    """Return the configs of a topic with these overrides; `keys` None: all of them."""
    return list(_topic_entries(context, overrides, keys))


def _result(
    context: ApiContext,
    request: Request[wire.DescribeConfigsRequest],
    resource: wire.DescribeConfigsResource,
    *,
    synonyms: bool,
    documentation: bool,
) -> wire.DescribeConfigsResult:
    try:
        _require(context, request, Operation.DESCRIBE_CONFIGS, resource)
        entries = list(_entries(context, resource))
    except KafkaError as error:
        return _failed(resource, error)
    for entry in entries:
        if not synonyms:
            entry["synonyms"] = ()
        if not documentation:
            entry["documentation"] = None
    return _outcome(resource, ErrorCode.NONE, "", entries)


def _require(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    resource: wire.DescribeConfigsResource | _Resource,
) -> None:
    """Raise KafkaError if the operation on the configs of the resource is denied.

    Rules for topics and groups name each; those of all else are rules for the cluster.
    """
    kind = _AUTHORIZED_AS.get(resource["resource_type"])
    if kind is not None:
        is_named = kind is not ResourceType.CLUSTER
        name = resource["resource_name"] if is_named else CLUSTER_NAME
        authorization.require(context, request, operation, kind, name)


def _entries(context: ApiContext, resource: wire.DescribeConfigsResource) -> Iterator[_Entry]:
    kind, name = resource["resource_type"], resource["resource_name"]
    # To ask for none is to ask for all, as with Apache Kafka.
    keys = resource["configuration_keys"] or None
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
    if kind == _BROKER_LOGGER:
        return _logger_entries(levels_of(context, name, keys))
    if kind == CLIENT_METRICS_RESOURCE:
        if not name:
            text = "Client metrics subscription name must not be empty"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return _client_metrics_entries(image.config(kind, name), keys)
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
    yield from _listener_entries(config.described_listener_keys, dynamic, keys)
    for name, key in BROKER_KEYS.items():
        if name.replace(".", "_") in type(config).model_fields or (
            keys is not None and name not in keys
        ):
            continue
        synonyms = [_synonym(name, one[name], source) for source, one in dynamic if name in one]
        synonyms.append(_synonym(name, text_of(key.default), _DEFAULT_CONFIG))
        yield _entry(name, key.type, key.description, synonyms, read_only=False)


def _listener_entries(
    described: Mapping[str, str | None],
    dynamic: list[tuple[int, Mapping[str, str]]],
    keys: Collection[str] | None,
) -> Iterator[_Entry]:
    """The keys of single listeners: those of the file, and those that change while it runs."""
    changed = (name for _, values in dynamic for name in values if dynamic_listener_key(name))
    for name in sorted({*described, *changed}):
        if keys is not None and name not in keys:
            continue
        read_only = dynamic_listener_key(name) is None
        written = described.get(name)
        is_hidden = name in described and written is None
        kind = ConfigType.PASSWORD if is_hidden else ConfigType.STRING
        if not read_only:
            kind = listener_key_type(name)
        synonyms = [_hidden(name, one[name], source) for source, one in dynamic if name in one]
        if name in described:
            synonyms.append(_synonym(name, written, _STATIC_BROKER_CONFIG))
        yield _entry(name, kind, None, synonyms, read_only=read_only)


def _hidden(name: str, value: str, source: int) -> wire.DescribeConfigsSynonym:
    """Return a synonym for a listener's key, without the value of a secret."""
    return _synonym(name, None if is_secret(name) else value, source)


def _all_brokers_entries(context: ApiContext, keys: Collection[str] | None) -> Iterator[_Entry]:
    """What is set for all brokers, and nothing else."""
    overrides = context.metadata.image.config(BROKER_RESOURCE, "")
    for name in sorted(overrides):
        key = BROKER_KEYS.get(name)
        if key is not None and (keys is None or name in keys):
            synonyms = [_synonym(name, overrides[name], _DYNAMIC_DEFAULT_BROKER_CONFIG)]
            yield _entry(name, key.type, key.description, synonyms, read_only=False)
    yield from _listener_entries({}, [(_DYNAMIC_DEFAULT_BROKER_CONFIG, overrides)], keys)


def _group_entries(overrides: Mapping[str, str], keys: Collection[str] | None) -> Iterator[_Entry]:
    for name, key in GROUP_KEYS.items():
        if keys is not None and name not in keys:
            continue
        synonyms = [_synonym(name, text_of(key.default), _DEFAULT_CONFIG)]
        if name in overrides:
            synonyms.insert(0, _synonym(name, overrides[name], _GROUP_CONFIG))
        yield _entry(name, key.type, key.description, synonyms, read_only=False)


def _logger_entries(levels: Mapping[str, str]) -> Iterator[_Entry]:
    for name, level in levels.items():
        in_force = [_synonym(name, level, _LOGGER_CONFIG)]
        entry = _entry(name, ConfigType.UNKNOWN, None, in_force, read_only=False)
        entry["synonyms"] = ()
        yield entry


def _client_metrics_entries(
    overrides: Mapping[str, str], keys: Collection[str] | None
) -> Iterator[_Entry]:
    """A default is no synonym, as with Apache Kafka."""
    for name, key in CLIENT_METRICS_KEYS.items():
        if keys is not None and name not in keys:
            continue
        is_set = name in overrides
        value = text_of(key.parse(overrides[name].strip())) if is_set else text_of(key.default)
        source = _CLIENT_METRICS_CONFIG if is_set else _DEFAULT_CONFIG
        synonyms = [_synonym(name, value, source)]
        entry = _entry(name, key.type, key.description, synonyms, read_only=False)
        entry["synonyms"] = synonyms if is_set else ()
        yield entry


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
        "is_sensitive": kind is ConfigType.PASSWORD,
        "synonyms": synonyms,
        "config_type": kind,
        "documentation": documentation,
    }


def _broker_text(value: Any) -> str | None:
    """Return a value as a file has it; None for a secret, which no answer holds."""
    if value is None or isinstance(value, SecretStr):
        return None
    if isinstance(value, str):
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
    """A whole number is of the type that its bounds fit in. A secret is one though it is unset."""
    if SecretStr in get_args(field.annotation):
        return ConfigType.PASSWORD
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


# --- alter ----------------------------------------------------------------------------------------


class _Name(TypedDict):
    """The fields of a response that name a resource."""

    resource_type: int
    resource_name: str


async def handle_incremental(
    context: ApiContext, request: Request[wire.IncrementalAlterConfigsRequest]
) -> wire.IncrementalAlterConfigsResponse:
    """Set, delete, append to and subtract from the configs of each resource (KIP-339)."""
    return await _alter(context, request, tuple(map(_incremental, request.body["resources"])))


async def handle_alter(
    context: ApiContext, request: Request[wire.AlterConfigsRequest]
) -> wire.AlterConfigsResponse:
    """Replace the configs of each resource by those given (KIP-133)."""
    return await _alter(context, request, tuple(map(_whole, request.body["resources"])))


async def _alter(
    context: ApiContext, request: Request[_Request], resources: tuple[ConfigAlteration, ...]
) -> wire.AlterConfigsResponse:
    # What is refused or done here stays out of the request, since the controller's outcomes have
    # no names: they are matched to the resources by their order.
    asked: Sequence[_Resource] = request.body["resources"]
    refusals = [_refusal(context, request, resource) for resource in asked]
    for position, alteration in enumerate(resources):
        if refusals[position] is None and alteration.resource_type == BROKER_RESOURCE:
            refusals[position] = await _broker_refusal(context, request, alteration)
        elif refusals[position] is None and _is_of_loggers(request, alteration.resource_type):
            refusals[position] = _logger_outcome(context, request, alteration)
    allowed = tuple(one for one, no in zip(resources, refusals, strict=True) if no is None)
    alter = AlterConfigsRequest(allowed, request.body["validate_only"])
    outcomes = iter(await forward(context, request, alter, _ALTER_TIMEOUT_MS) if allowed else ())
    found = [next(outcomes) if refusal is None else refusal for refusal in refusals]
    pairs = zip(asked, found, strict=True)
    return {
        "responses": [{**_named(resource), **result_of(outcome)} for resource, outcome in pairs]
    }


def _refusal(
    context: ApiContext, request: Request[_Request], resource: _Resource
) -> ItemOutcome | None:
    """Return the refusal of a resource with an impossible topic name or missing values, or None.

    The controller need not look at these. An empty name is that of all brokers' defaults; topics
    have no such defaults. Loggers are a broker's own, so it decides who may alter them.
    """
    null = [
        one["name"]
        for one in resource["configs"]
        if one["value"] is None
        and one.get("config_operation", AlterOperation.SET) != AlterOperation.DELETE
    ]
    if null:
        text = f"Null value not supported for: {', '.join(null)}"
        return ItemOutcome(ErrorCode.INVALID_REQUEST, text)
    if _is_of_loggers(request, resource["resource_type"]):
        try:
            _require(context, request, Operation.ALTER_CONFIGS, resource)
        except KafkaError as error:
            return ItemOutcome(error.code, error.message)
    name = resource["resource_name"]
    problem = name_problem(name) if resource["resource_type"] == TOPIC_RESOURCE else None
    if problem is not None and not name:
        return ItemOutcome(ErrorCode.INVALID_REQUEST, "there are no configs of all topics")
    return None if problem is None else ItemOutcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _is_of_loggers(request: Request[_Request], resource_type: int) -> bool:
    """Whether this broker decides; AlterConfigs knows no loggers, as the controller says."""
    return resource_type == _BROKER_LOGGER and request.api_key != ApiKey.ALTER_CONFIGS


def _logger_outcome(
    context: ApiContext, request: Request[_Request], alteration: ConfigAlteration
) -> ItemOutcome:
    """Change levels of loggers, unless the resource is named twice, and return the outcome."""
    named = [(one["resource_type"], one["resource_name"]) for one in request.body["resources"]]
    try:
        if named.count((alteration.resource_type, alteration.resource_name)) > 1:
            text = "Each resource must appear at most once."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        alter_levels(context, alteration, validate_only=request.body["validate_only"])
    except KafkaError as error:
        return ItemOutcome(error.code, error.message)
    return ItemOutcome()


async def _broker_refusal(
    context: ApiContext, request: Request[_Request], alteration: ConfigAlteration
) -> ItemOutcome | None:
    """Return the refusal of a change of listeners' configs that cannot be in force here, or None.

    Only the broker that has the files of the stores knows whether they can be used. Who may not
    change a config learns nothing of the files: the controller refuses.
    """
    name, node_id = alteration.resource_name, str(context.config.node_id)
    overrides = dict(context.metadata.image.config(BROKER_RESOURCE, name))
    proposed = {} if alteration.replace else dict(overrides)
    for change in alteration.changes:
        if change.operation == AlterOperation.DELETE:
            proposed.pop(change.key, None)
        elif change.operation == AlterOperation.SET and change.value is not None:
            proposed[change.key] = change.value
    if context.listener_configs is None or (
        connection_overrides(proposed) == connection_overrides(overrides)
    ):
        return None
    kind = ResourceType.CLUSTER
    if not authorization.may_change(context, request, Operation.ALTER_CONFIGS, kind, CLUSTER_NAME):
        return None
    try:
        if name not in ("", node_id):
            text = f"Unexpected broker id, expected {node_id}, but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        check_listener_keys(proposed, one_broker=bool(name))
        await context.listener_configs.check(proposed, one_broker=bool(name))
    except KafkaError as error:
        return ItemOutcome(error.code, error.message)
    return None


def _named(resource: _Resource) -> _Name:
    return {
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
    }


def _incremental(
    resource: wire.IncrementalAlterConfigsRequestAlterConfigsResource,
) -> ConfigAlteration:
    changes = tuple(
        ConfigChange(one["name"], one["config_operation"], one["value"])
        for one in resource["configs"]
    )
    return ConfigAlteration(resource["resource_type"], resource["resource_name"], changes)


def _whole(resource: wire.AlterConfigsRequestAlterConfigsResource) -> ConfigAlteration:
    # A config that the request does not name goes back to its default: two clients that alter
    # different configs undo each other, which is why KIP-339 has the incremental form.
    changes = tuple(
        ConfigChange(one["name"], AlterOperation.SET, one["value"]) for one in resource["configs"]
    )
    kind, name = resource["resource_type"], resource["resource_name"]
    return ConfigAlteration(kind, name, changes, replace=True)


# --- list -----------------------------------------------------------------------------------------


def handle_list(
    context: ApiContext, request: Request[wire.ListConfigResourcesRequest]
) -> wire.ListConfigResourcesResponse:
    """Every topic and broker, and the groups and subscriptions that have configs.

    Of all types or those asked for. A type that nobody knows is UNSUPPORTED_VERSION for the whole
    request.
    """
    authorization.require(context, request, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    known = _RESOURCE_TYPES if request.version else _RESOURCE_TYPES_IN_VERSION_0
    asked = request.body.get("resource_types") or known
    for kind in asked:
        if kind not in known:
            text = f"resource type {kind} is not one of {', '.join(map(str, known))}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    return {
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in dict.fromkeys(asked)
            for name in _names(context, kind)
        ],
    }


def _names(context: ApiContext, kind: int) -> list[str]:
    image = context.metadata.image
    if kind == TOPIC_RESOURCE:
        return [topic.name for topic in image.topics.in_order()]
    if kind in (BROKER_RESOURCE, _BROKER_LOGGER):
        return [str(broker_id) for broker_id in context.metadata.live_brokers(context.listener)]
    return sorted(name for owner, name in image.configs if owner == kind)
