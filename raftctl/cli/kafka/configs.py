"""`raftctl configs`: over the Kafka protocol (row C9), as kafka-configs.sh.

Asked by kafka-python's messages: no client's own methods can name what is set for all brokers.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raftctl.cli._arguments import with_near_miss
from raftctl.cli._options import CommandGroup, ValidateOption
from raftctl.cli._output import table
from raftctl.cli.kafka.admin import Cluster, check, send
from raftctl.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = CommandGroup("Shows and alters configs, and levels of loggers.")


class Entity(enum.StrEnum):
    """Whose configs."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    BROKER_LOGGER = "broker-logger"
    CLIENT_METRICS = "client-metrics"


class Operation(enum.IntEnum):
    """What is done to a config (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    """Whose configs; the empty name stands for all brokers."""

    entity: Entity
    name: str

    def __str__(self) -> str:
        return f"{self.entity} {self.name}" if self.name else "all brokers"


Change = tuple[Operation, str, str | None]
"""(operation, key, value); the value is None for DELETE."""

RESOURCE_TYPES = {
    Entity.TOPIC: 2,
    Entity.BROKER: 4,
    Entity.GROUP: 32,
    Entity.BROKER_LOGGER: 8,
    Entity.CLIENT_METRICS: 16,
}
"""Kafka's numbers."""
BROKER_ID_MAX = 2**31 - 1
_OF_A_BROKER = (Entity.BROKER, Entity.BROKER_LOGGER)
"""Named by the broker's id, which is asked itself."""
SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker's file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}


def entity_of(text: str) -> Entity:
    """Also the plurals that Apache Kafka's tool takes."""
    for entity in Entity:
        if text.lower() in (entity, f"{entity}s"):
            return entity
    known = ", ".join(Entity)
    raise typer.BadParameter(f"{text!r} has no configs here: name one of {known}")


def complete_entity(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [one for one in Entity if one.startswith(incomplete)]


EntityOption = Annotated[
    Entity,
    typer.Option(
        "--entity-type",
        metavar="topic|broker|group|broker-logger|client-metrics",
        parser=entity_of,
        autocompletion=complete_entity,
        help="Whose configs.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--entity-name",
        metavar="NAME",
        help="The topic, the broker's id, the group or the subscription of client metrics.",
    ),
]
DefaultOption = Annotated[
    bool,
    typer.Option("--entity-default", help="All brokers, where one has no config of its own."),
]


@app.command()
def describe(
    cluster: Cluster,
    entity_type: EntityOption,
    entity_name: NameOption = None,
    entity_default: DefaultOption = False,
    every: Annotated[bool, typer.Option("--all", help="Also shows defaults.")] = False,
) -> None:
    """Shows what is in force and where each value comes from.

    Synonyms are the values that a config has from each source, the one in force first. If that
    is reset, the next takes its place. Of a broker's loggers each is shown with its level; those
    of a controller are shown by `raftctl loggers`.
    """
    from kafka.protocol.admin import DescribeConfigsRequest as Ask

    resource = resource_of(entity_type, entity_name, default=entity_default)
    asked = Ask.DescribeConfigsResource(
        resource_type=RESOURCE_TYPES[resource.entity],
        resource_name=resource.name,
        configuration_keys=None,
    )
    request = Ask(resources=[asked], include_synonyms=True, include_documentation=False)
    result = _ask(cluster, resource, request)["results"][0]
    check(result)
    found = [
        {
            "name": one["name"],
            "value": one["value"],
            "source": _source(one["config_source"]),
            "read_only": one["read_only"],
            "synonyms": [_synonym(synonym) for synonym in one["synonyms"] or ()],
        }
        for one in sorted(result["configs"], key=lambda one: str(one["name"]))
        if every or _source(one["config_source"]) not in ("default", "broker's file")
    ]
    rows = [
        [one["name"], one["value"], one["source"], one["read_only"], _text(one["synonyms"])]
        for one in found
    ]
    columns = ("NAME", "VALUE", "SOURCE", "READ-ONLY", "SYNONYMS")
    cluster.show(found, table(columns, rows, "nothing is set; --all shows the defaults"))


@app.command()
def alter(
    cluster: Cluster,
    entity_type: EntityOption,
    entity_name: NameOption = None,
    entity_default: DefaultOption = False,
    add: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Sets a config.")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="KEY", help="Resets a config.")
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option("--append", metavar="KEY=VALUE", help="Adds to a list.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Takes from a list.")
    ] = None,
    add_config: Annotated[
        str,
        typer.Option(metavar="KEY=VALUE,...", help="Sets configs, as Kafka's tool: K=V,L=[A,B]."),
    ] = "",
    delete_config: Annotated[
        str, typer.Option(metavar="KEY,...", help="Resets configs, as Kafka's tool.")
    ] = "",
    validate_only: ValidateOption = False,
) -> None:
    """Changes configs, all or none of them; in force at once.

    Levels of loggers are FATAL, ERROR, WARN, INFO, DEBUG and TRACE, as Apache Kafka's. A broker
    that is restarted has forgotten them. A logger whose level is deleted follows its parent, as
    `broker.log` follows `broker`, and that `root`.
    """
    changes: list[Change] = [
        *((Operation.SET, *_pair("--set", one)) for one in add or ()),
        *((Operation.DELETE, _key(key), None) for key in delete or ()),
        *((Operation.APPEND, *_pair("--append", one)) for one in append or ()),
        *((Operation.SUBTRACT, *_pair("--subtract", one)) for one in subtract or ()),
        *((Operation.SET, *_pair("--add-config", one)) for one in _listed(add_config)),
        *((Operation.DELETE, _key(key), None) for key in _listed(delete_config)),
    ]
    resource = resource_of(entity_type, entity_name, default=entity_default)
    keys = [key for _, key, _ in changes]
    _check_changes(keys)
    request = _altering(resource, changes, validate_only=validate_only)
    try:
        check(_ask(cluster, resource, request)["responses"][0])
    except KafkaError as error:
        raise with_near_miss(error) from None
    done = "could alter" if validate_only else "altered"
    document = {"altered": not validate_only, "keys": keys}
    cluster.show(document, f"{done} {resource}: {', '.join(keys)}")


def resource_of(entity: Entity, name: str | None, *, default: bool) -> Resource:
    """What the options name; ConfigError says what is amiss."""
    if default and entity is not Entity.BROKER:
        message = f"--entity-default: a {entity} has none; set it for all brokers, or by name"
        raise ConfigError(message)
    if default == (name is not None):
        or_default = " or --entity-default" if entity is Entity.BROKER else ""
        raise ConfigError(f"name the {entity}: give --entity-name NAME{or_default}")
    if name == "":
        raise ConfigError(f"--entity-name is empty: name the {entity}")
    if name and entity in _OF_A_BROKER:
        if not name.isascii() or not name.isdecimal() or int(name) > BROKER_ID_MAX:
            raise ConfigError(f"--entity-name {name}: a broker is named by its id, a number")
        name = str(int(name))
    return Resource(entity, name or "")


def _check_changes(keys: Sequence[str]) -> None:
    if not keys:
        raise ConfigError("nothing to change: give --set, --delete, --append or --subtract")
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)}: named twice; change a config once in a command")


def _altering(resource: Resource, changes: Sequence[Change], *, validate_only: bool) -> Any:
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Ask

    configs = [
        Ask.AlterConfigsResource.AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, key, value in changes
    ]
    altered = Ask.AlterConfigsResource(
        resource_type=RESOURCE_TYPES[resource.entity],
        resource_name=resource.name,
        configs=configs,
    )
    return Ask(resources=[altered], validate_only=validate_only)


def _ask(cluster: Cluster, resource: Resource, request: Any) -> dict[str, Any]:
    """The answer of the broker that is named, or else of any."""
    is_asked = resource.entity in _OF_A_BROKER and resource.name
    by_itself = int(resource.name) if is_asked else None
    with cluster.open() as client:
        return send(client, request, by_itself)


def _listed(text: str) -> list[str]:
    """The items between commas; brackets hold a value that has commas itself."""
    items = re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text)
    return [one.replace("=[", "=", 1).removesuffix("]") if "=[" in one else one for one in items]


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"{option} {text!r} sets nothing: write KEY=VALUE")
    return key, value


def _key(text: str) -> str:
    if "=" in text or not text:
        raise ConfigError(f"--delete {text!r}: write the KEY alone")
    return text


def _source(number: int) -> str:
    return SOURCES.get(number, str(number))


def _synonym(entry: dict[str, Any]) -> dict[str, Any]:
    return {"name": entry["name"], "value": entry["value"], "source": _source(entry["source"])}


def _text(synonyms: Sequence[dict[str, Any]]) -> str:
    return "; ".join(f"{one['source']}: {one['name']}={one['value']}" for one in synonyms)
