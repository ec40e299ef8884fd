"""All commands put together; each is a module of its own."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from jepsen.cli import check, convert, demo, report, shrink, spark, test, test_all

app = typer.Typer(
    name="jepsen",
    help="Breaks clusters, records what their clients saw, and judges it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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
