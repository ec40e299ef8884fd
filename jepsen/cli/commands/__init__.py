"""The table of commands: each module here has one or two, and this door puts them together.

`app` is the command line of `jepsen`. `SECTIONS` says under which heading help shows a command.
`jepsen spark` stands beside this package, since `spark-submit` runs it alone, without the modules
that run tests.

A command parses its options, calls the package that does the work, and prints what comes back. It
must not decide a verdict.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jepsen.cli import spark
from jepsen.cli.commands import check, convert, demo, report, shrink, test, test_all

if TYPE_CHECKING:
    from collections.abc import Callable

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


COMMANDS: dict[str, Callable[..., None]] = {
    "check": check.check,
    "check-servers": check.check_servers,
    "convert": convert.convert,
    "replicas": check.replicas,
    "test": test.run,
    "test-all": test_all.run,
    "shrink": shrink.shrink,
    "demo": demo.demo,
    "report": report.report,
    "serve": report.serve,
}
for _name, _command in COMMANDS.items():
    app.command(name=_name)(_command)
app.add_typer(spark.app, name="spark")

__all__ = ["SECTIONS", "app"]
