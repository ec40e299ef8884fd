"""`raftctl configs`: over the Kafka protocol (row C9), as kafka-configs.sh."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli.output import BootstrapOption, Output, OutputOption, show, table
from raftctl.cli.topics import TIMEOUT_S, TimeoutOption, admin_client, wait_for
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka.admin._config import ConfigResource

app = typer.Typer(
    help="Shows and alters configs of topics, brokers and groups.", no_args_is_help=True
)


class Entity(enum.StrEnum):
    """Whose configs."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


EntityOption = Annotated[
    Entity, typer.Option("--entity-type", metavar="topic|broker|group", help="Whose configs.")
]
NameOption = Annotated[
    str, typer.Option("--entity-name", help="The topic, the broker's id or the group.")
]
SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker's file",
    5: "default",
    8: "group",
}


@app.command()
def describe(
    bootstrap_server: BootstrapOption,
    entity_type: EntityOption,
    entity_name: NameOption,
    every: Annotated[bool, typer.Option("--all", help="Also what nobody has set.")] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows what is in force and where each value comes from."""
    resource = _resource(entity_type, entity_name)
    client = admin_client(bootstrap_server)
    futures = client.describe_configs([resource], request_timeout=timeout)
    entries = wait_for(futures[resource], timeout)
    found = [
        {
            "name": name,
            "value": entry.value,
            "source": SOURCES.get(entry.source, str(entry.source)),
            "read_only": bool(entry.is_read_only),
        }
        for name, entry in sorted(entries.items())
        if every or SOURCES.get(entry.source) not in ("default", "broker's file")
    ]
    rows = [list(one.values()) for one in found]
    show(output, found, table(("NAME", "VALUE", "SOURCE", "READ-ONLY"), rows))


@app.command()
def alter(
    bootstrap_server: BootstrapOption,
    entity_type: EntityOption,
    entity_name: NameOption,
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
        list[str] | None, typer.Option("--subtract", metavar="KEY=VALUE", help="Takes from one.")
    ] = None,
    validate_only: Annotated[bool, typer.Option(help="Says what would come of it.")] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Changes configs, all or none of them; in force at once."""
    operations = [
        *(("SET", *_pair(one)) for one in add or ()),
        *(("DELETE", key, None) for key in delete or ()),
        *(("APPEND", *_pair(one)) for one in append or ()),
        *(("SUBTRACT", *_pair(one)) for one in subtract or ()),
    ]
    if not operations:
        raise ConfigError("nothing to change: give --set, --delete, --append or --subtract")
    resource = _resource(entity_type, entity_name, operations)
    client = admin_client(bootstrap_server)
    futures = client.incremental_alter_configs(
        [resource], validate_only=validate_only, request_timeout=timeout
    )
    wait_for(futures[resource], timeout)
    whose = f"{entity_type} {entity_name}"
    done = "could alter" if validate_only else "altered"
    keys = [key for _, key, _ in operations]
    show(output, {"altered": not validate_only, "keys": keys}, f"{done} {whose}: {', '.join(keys)}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"{text!r} sets nothing: write KEY=VALUE")
    return key, value


def _resource(
    kind: Entity, name: str, operations: list[tuple[Any, ...]] | None = None
) -> ConfigResource:
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    if not name:
        raise ConfigError(f"--entity-name is empty: name the {kind}")
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType[operation])
        for operation, key, value in operations or ()
    ]
    return ConfigResource(ResourceType[kind.name], name, incremental_configs=entries or None)
