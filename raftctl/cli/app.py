"""All commands put together; each group is a module of its own.

A command line that names its command is parsed with that one alone: to import the modules of all
takes many times as long as most commands run. Help, completion and errors are given all of them.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from raftctl.cli._arguments import COMPLETION_VARIABLE
from raftctl.cli._kafka_tools import translate
from raftctl.cli._options import Printer, flattened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


GROUPS = {
    "storage": "offline.storage",
    "bench": "clients.bench",
    "console": "clients.console",
    "topics": "kafka.topics",
    "partitions": "kafka.topics:partitions",
    "configs": "kafka.configs",
    "quotas": "kafka.access.quotas",
    "acls": "kafka.access.acls",
    "users": "kafka.access.users",
    "tokens": "kafka.access.tokens",
    "brokers": "kafka.brokers",
    "features": "kafka.features",
    "groups": "kafka.groups",
    "transactions": "kafka.transactions",
    "quorum": "quorum",
    "loggers": "loggers",
    "kv": "kv",
    "log": "offline.log",
    "metadata": "offline.metadata",
}
"""Name -> the module of `raftctl.cli` whose `app` has the group's commands, or `module:name`."""

COMMANDS = {
    "delete-records": "kafka.delete_records",
    "elect-leaders": "kafka.placement.elect_leaders",
    "reassign-partitions": "kafka.placement.reassign_partitions",
    "start": "local.start",
    "up": "local.cluster",
    "down": "local.cluster",
    "restart": "local.cluster",
    "status": "local.cluster",
    "top": "top",
    "offsets": "kafka.offsets",
    "demo": "local.demo",
    "cluster-id": "kafka.cluster_id",
    "verifiable-producer": "clients.verifiable_producer",
    "verifiable-consumer": "clients.verifiable_consumer",
    "completion": "_program",
    "plugins": "_program",
    "version": "_program",
}
"""Name -> the module that has it as a function."""


SECTIONS = {
    "A cluster on this machine": ("up", "status", "restart", "down", "demo"),
    "Nodes": ("storage", "start", "log", "plugins"),
    "Topics": ("topics", "partitions", "configs", "elect-leaders", "reassign-partitions"),
    "Records": (
        "console",
        "offsets",
        "delete-records",
        "bench",
        "verifiable-producer",
        "verifiable-consumer",
    ),
    "Groups and transactions": ("groups", "transactions"),
    "Access": ("users", "tokens", "acls", "quotas"),
    "The cluster as a whole": (
        "top",
        "brokers",
        "quorum",
        "loggers",
        "features",
        "metadata",
        "cluster-id",
    ),
    "Coordination": ("kv",),
    "This program": ("completion", "version"),
}
"""Heading -> commands and groups, as help shows them."""
_WIDTH_MAX = 120
"""Of help, on terminals that are as wide."""


class _Root(TyperGroup):
    """Shows its commands by topic."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each topic that has commands here."""
        widest = max(map(len, self.commands))
        limit = formatter.width - 4 - widest
        for heading, names in SECTIONS.items():
            known = [name for name in names if name in self.commands]
            # Padded, so that the sections' columns stand below one another.
            rows = [
                (name.ljust(widest), self.commands[name].get_short_help_str(limit))
                for name in known
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _root(
    version: Annotated[bool, typer.Option("--version", help="Prints the versions.")] = False,
) -> None:
    if version:
        import_module("raftctl.cli._program").version(Printer())
        raise typer.Exit


def make_app(names: Iterable[str] = (*GROUPS, *COMMANDS)) -> typer.Typer:
    """`raftctl` with these groups and commands."""
    app = typer.Typer(
        name="raftctl",
        help="A KRaft-style consensus controller with pluggable brokers that speak Kafka's "
        "protocol.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=_Root,
        context_settings={"max_content_width": _WIDTH_MAX},
    )
    # With a callback a single command is a subcommand still.
    app.callback(invoke_without_command=True)(_root)
    for name in names:
        if name in GROUPS:
            module, _, group = GROUPS[name].partition(":")
            commands = getattr(import_module(f"raftctl.cli.{module}"), group or "app")
            app.add_typer(commands, name=name)
        else:
            function = getattr(
                import_module(f"raftctl.cli.{COMMANDS[name]}"), name.replace("-", "_")
            )
            app.command(name=name)(flattened(function))
    return app


def run_app(arguments: Sequence[str]) -> int:
    """Parses and runs; returns the exit status. Raises what the command raises."""
    arguments = translate(arguments)
    named = arguments[0] if arguments else None
    is_known = named in GROUPS or named in COMMANDS
    app = (
        make_app([named])
        if named and is_known and COMPLETION_VARIABLE not in os.environ
        else make_app()
    )
    try:
        app(args=arguments, prog_name="raftctl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0
