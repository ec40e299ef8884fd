"""`raftctl quotas`: what clients may use, over the Kafka protocol (row C12; KIP-546)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._options import CommandGroup, ValidateOption
from raftctl.cli._output import table
from raftctl.cli.files import parse_overrides
from raftctl.cli.kafka.admin import Cluster, check, send
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

app = CommandGroup("Shows and changes quotas of users and clients.")

_EXACT, _DEFAULT, _ANY = 0, 1, 2
"""How a part of a filter is meant."""
KINDS = ("user", "client-id", "ip")
DEFAULT_NAME = "<default>"
"""How the entity of all who have no quota of their own is shown, as Apache Kafka's tools do."""

Part = tuple[str, str | None]
"""(kind, name); None stands for all without a quota of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """The users, clients and addresses that quotas are for."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")] = None
    user_defaults: Annotated[
        bool, typer.Option("--user-defaults", help="All users without a quota of their own.")
    ] = False
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="NAME", help="A client's id.")
    ] = None
    client_id_defaults: Annotated[
        bool, typer.Option("--client-id-defaults", help="All client ids without one of their own.")
    ] = False
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address.")] = None
    ip_defaults: Annotated[
        bool, typer.Option("--ip-defaults", help="All addresses without a quota of their own.")
    ] = False

    def parts(self) -> list[Part]:
        """What is named; ConfigError for what does not go together."""
        parts: list[Part] = []
        for kind in KINDS:
            attribute = kind.replace("-", "_")
            name, defaults = getattr(self, attribute), getattr(self, f"{attribute}_defaults")
            if name is not None and defaults:
                raise ConfigError(f"give either --{kind} or --{kind}-defaults")
            if name == "":
                raise ConfigError(f"--{kind} is empty: write a name, or give --{kind}-defaults")
            if name is not None or defaults:
                parts.append((kind, name))
        if len(parts) > 1 and parts[-1][0] == "ip":
            raise ConfigError("--ip has quotas of its own: name no user and no client id with it")
        return parts


@app.command()
def describe(
    cluster: Cluster,
    entity: Entity,
    strict: Annotated[
        bool, typer.Option("--strict", help="Only quotas of exactly these names.")
    ] = False,
) -> None:
    """Shows the quotas of what is named, or all of them."""
    from kafka.protocol.admin import DescribeClientQuotasRequest as Ask

    parts = entity.parts()
    if strict and not parts:
        raise ConfigError("--strict: name a --user, --client-id or --ip")
    components = [
        Ask.ComponentData(
            entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
        )
        for kind, name in parts
    ]
    with cluster.open() as client:
        answer = send(client, Ask(components=components, strict=strict))
    check(answer)
    found = [
        {"entity": _names(one["entity"]), "quotas": {v["key"]: v["value"] for v in one["values"]}}
        for one in answer["entries"] or ()
    ]
    rows = [
        [*(_shown(one["entity"], kind) for kind in KINDS), key, f"{value:.15g}"]
        for one in found
        for key, value in sorted(one["quotas"].items())
    ]
    columns = ("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE")
    cluster.show(found, table(columns, rows, "no such quota"))


@app.command()
def alter(
    cluster: Cluster,
    entity: Entity,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="QUOTA=VALUE", help="E.g. producer_byte_rate=1048576, bytes a second."
        ),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="QUOTA", help="Takes a quota away.")
    ] = None,
    validate_only: ValidateOption = False,
) -> None:
    """Sets and removes quotas, all or none of them. A user and a client id may be named
    together."""
    from kafka.protocol.admin import AlterClientQuotasRequest as Ask

    parts = entity.parts()
    if not parts:
        raise ConfigError("name whose quota it is: a --user, --client-id or --ip, or the defaults")
    changes = parse_changes(add or (), delete or ())
    entry = Ask.EntryData(
        entity=[Ask.EntryData.EntityData(entity_type=k, entity_name=name) for k, name in parts],
        ops=[
            Ask.EntryData.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    with cluster.open() as client:
        (result,) = send(client, Ask(entries=[entry], validate_only=validate_only))["entries"]
    check(result)
    done = "could alter" if validate_only else "altered"
    whose = ", ".join(f"{kind} {DEFAULT_NAME if name is None else name}" for kind, name in parts)
    document = {"altered": not validate_only, "entity": dict(parts), "quotas": changes}
    cluster.show(document, f"{done} {whose}: {', '.join(changes)}")


def parse_changes(add: Iterable[str], delete: Iterable[str]) -> dict[str, float | None]:
    """Quota -> its new value, None for one that goes. ConfigError for what makes no sense."""
    changes: dict[str, float | None] = dict.fromkeys(delete)
    for key, text in parse_overrides(add, "--set").items():
        if key in changes:
            raise ConfigError(f"--set {key}: it is named by --delete, too")
        changes[key] = _number(key, text)
    if not changes:
        raise ConfigError("nothing to change: give --set QUOTA=VALUE or --delete QUOTA")
    return changes


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"--set {key}={text}: the value must be a number above 0")
    return value


def _names(entity: Iterable[dict[str, Any]]) -> dict[str, str | None]:
    return {part["entity_type"]: part["entity_name"] for part in entity}


def _shown(entity: dict[str, str | None], kind: str) -> str | None:
    return None if kind not in entity else entity[kind] or DEFAULT_NAME
