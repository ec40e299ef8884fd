"""All commands put together; each is a module of its own."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated, Any

import typer

from jepsen.cli import check, convert, demo, report, shrink, spark, test, test_all

SECTIONS = {
    "Tests of clusters": ("demo", "test", "test-all", "shrink"),
    "Verdicts on what is there": ("check", "check-servers", "replicas", "spark"),
    "Reports": ("report", "serve", "convert"),
}
"""Heading -> commands, as help shows them."""


class Root(typer.core.TyperGroup):
    """Shows its commands by topic."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each topic."""
        widest = max(map(len, self.commands))
        limit = formatter.width - 4 - widest
        for heading, names in SECTIONS.items():
            # Padded, so that the columns of all sections stand below one another.
            rows = [
                (name.ljust(widest), self.commands[name].get_short_help_str(limit))
                for name in names
                if name in self.commands
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


app = typer.Typer(
    name="jepsen",
    help="Breaks clusters, records what their clients saw, and judges it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Root,
)


@app.callback(invoke_without_command=True)
def _commands(
    version: Annotated[bool, typer.Option("--version", help="Prints the version.")] = False,
) -> None:
    """Breaks clusters, records what their clients saw, and judges it."""
    if version:
        typer.echo(f"jepsen {version_of('raftctl')}")
        raise typer.Exit


app.command()(check.check)
app.command()(check.check_servers)
app.command()(convert.convert)
app.command()(check.replicas)
app.command(name="test")(test.run)
app.command(name="test-all")(test_all.run)
app.command()(shrink.shrink)
app.command()(demo.demo)
app.command()(report.report)
app.command()(report.serve)
app.add_typer(spark.app, name="spark")
