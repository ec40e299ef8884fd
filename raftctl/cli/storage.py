"""`raftctl storage`: prepares and shows the directories of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from raftctl.cli.files import read_config_file
from raftctl.cli.output import ConfigOption, Output, OutputOption, show, table
from raftctl.errors import ConfigError
from raftctl.ids import parse_uuid, uuid_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.config import NodeConfig

app = typer.Typer(help="Prepares and shows the directories of a node.", no_args_is_help=True)


@app.command(name="format")
def format_command(
    config: ConfigOption,
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", help="One of `random-uuid`, the same on every node.")
    ],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Leave directories that are formatted.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Prepares the directories of a node: writes meta.properties into each."""
    done = format_storage(read_config_file(config), cluster_id, ignore_formatted=ignore_formatted)
    show(output, {"formatted": done}, "\n".join(f"formatted {path}" for path in done) or "nothing")


@app.command()
def info(config: ConfigOption, output: OutputOption = Output.TABLE) -> None:
    """Shows what the directories of a node belong to. Exit status 1 if one is not formatted."""
    from raftctl.runtime.real import RealFileSystem
    from raftctl.storage.meta_properties import MetaProperties

    files = RealFileSystem()
    node = read_config_file(config)
    rows = []
    for directory in node.directories:
        found = MetaProperties.load(files, directory)
        rows.append(
            {
                "directory": directory,
                "cluster_id": found and found.cluster_id,
                "node_id": found and found.node_id,
                "directory_id": found and uuid_text(found.directory_id),
            }
        )
    heads = ("DIRECTORY", "CLUSTER", "NODE", "DIRECTORY-ID")
    show(output, rows, table(heads, [list(row.values()) for row in rows]))
    if any(row["cluster_id"] is None for row in rows):
        raise typer.Exit(1)


@app.command(name="verify")
def verify_command(config: ConfigOption, output: OutputOption = Output.TABLE) -> None:
    """Checks what a stopped node has on its disks and changes nothing.

    Exit status 1 if something is damaged. A torn tail is not: it is what a crash leaves of a write
    that nobody was told of, and the node cuts it off when it starts.
    """
    from raftctl.cli.verify import DAMAGED, verify

    findings = verify(read_config_file(config))
    rows = [finding._asdict() for finding in findings]
    show(output, rows, table(("WHAT", "STATE", "DETAIL"), findings))
    if any(finding.state == DAMAGED for finding in findings):
        raise typer.Exit(1)


@app.command(name="random-uuid")
def random_uuid(output: OutputOption = Output.TABLE) -> None:
    """Prints a new cluster id."""
    text = random_uuid_text()
    show(output, {"uuid": text}, text)


def random_uuid_text() -> str:
    """A new id; never one that begins with a dash, which a command line takes for an option."""
    while (text := uuid_text(uuid4())).startswith("-"):
        pass
    return text


def format_storage(
    config: NodeConfig, cluster_id: str, *, ignore_formatted: bool = False
) -> Sequence[str]:
    """Formats the directories of the node and returns them.

    ConfigError, with nothing changed, if one belongs to another cluster or node, or is formatted
    already without `ignore_formatted`.
    """
    from raftctl.runtime.real import RealFileSystem
    from raftctl.storage.meta_properties import MetaProperties

    _check_cluster_id(cluster_id)
    files = RealFileSystem()
    blank = []
    for directory in config.directories:
        found = MetaProperties.load(files, directory)
        if found is None:
            blank.append(directory)
            continue
        found.check(directory, node_id=config.node_id, cluster_id=cluster_id)
        if not ignore_formatted:
            raise ConfigError(
                f"log.dirs: {directory} is formatted already; --ignore-formatted leaves it as it is"
            )
    for directory in blank:
        files.make_directories(directory)
        MetaProperties(cluster_id, config.node_id, uuid4()).save(files, directory)
    return blank


def _check_cluster_id(cluster_id: str) -> None:
    try:
        parse_uuid(cluster_id)
    except ValueError as error:
        raise ConfigError(f"--cluster-id: {error}; raftctl storage random-uuid makes one") from None
