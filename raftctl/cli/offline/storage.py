"""`raftctl storage`: prepares and shows the directories of a node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, NamedTuple
from uuid import uuid4

import typer

from raftctl.cli._options import CommandGroup, ConfigOption, Printer
from raftctl.cli.files import read_config_file
from raftctl.errors import ConfigError
from raftctl.ids import parse_uuid, uuid_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from raftctl.config import NodeConfig
    from raftctl.metadata.records import UserScramCredentialRecord
    from raftctl.raft.messages import Voter

app = CommandGroup("Prepares and shows the directories of a node.")


@app.command(name="format")
def format_command(
    printer: Printer,
    config: ConfigOption,
    cluster_id: Annotated[
        str,
        typer.Option(
            "--cluster-id", metavar="ID", help="Id from `random-uuid`, the same on every node."
        ),
    ],
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Leaves formatted directories as they are.")
    ] = False,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="This controller is the first and only voter.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            metavar="ID@HOST:PORT:DIRECTORY-ID,...",
            help="The first voters, this controller among them, the same on each.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool,
        typer.Option(
            "--no-initial-controllers", help="This controller joins a quorum, to be added later."
        ),
    ] = False,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            metavar="MECHANISM=[name=USER,password=PASSWORD]",
            help="A user that the cluster begins with; may be repeated. The same on each "
            "controller.",
        ),
    ] = None,
) -> None:
    """Prepares the directories of a node. Writes meta.properties into each.

    A controller without controller.quorum.voters needs one of --standalone,
    --initial-controllers and --no-initial-controllers, which name the first voters.
    """
    from raftctl.cli.offline.scram_users import parse_scram_user

    node = read_config_file(config)
    first = FirstVoters(standalone, initial_controllers, no_initial_controllers)
    users = [parse_scram_user(text) for text in add_scram or ()]
    done = format_storage(
        node, cluster_id, first=first, users=users, ignore_formatted=ignore_formatted
    )
    printer.show({"formatted": done}, "\n".join(f"formatted {path}" for path in done) or "nothing")


@app.command()
def info(config: ConfigOption, printer: Printer) -> None:
    """Shows what the directories of a node belong to. Exit status 1 if one is not formatted."""
    from raftctl.runtime.real import RealFileSystem
    from raftctl.storage import MetaProperties

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
    printer.show_rows(heads, rows)
    if any(row["cluster_id"] is None for row in rows):
        raise typer.Exit(1)


@app.command(name="verify")
def verify_command(config: ConfigOption, printer: Printer) -> None:
    """Checks what a stopped node has on its disks. Changes nothing.

    Exit status 1 if something is damaged. A torn tail is not: it is what a crash leaves of a write
    that was never acknowledged, and the node cuts it off when it starts.
    """
    from raftctl.cli.offline.verify import DAMAGED, verify

    findings = verify(read_config_file(config))
    rows = [finding._asdict() for finding in findings]
    printer.show_rows(("WHAT", "STATE", "DETAIL"), rows)
    if any(finding.state == DAMAGED for finding in findings):
        raise typer.Exit(1)


@app.command(name="random-uuid")
def random_uuid(printer: Printer) -> None:
    """Prints a new cluster id."""
    text = random_uuid_text()
    printer.show({"uuid": text}, text)


def random_uuid_text() -> str:
    """A new id; never one that begins with a dash, which a command line takes for an option."""
    while (text := uuid_text(uuid4())).startswith("-"):
        pass
    return text


class FirstVoters(NamedTuple):
    """The options of `format` that name the first voters of a quorum."""

    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False

    def check(self, config: NodeConfig) -> None:
        """ConfigError if that does not fit the configuration."""
        options = {
            "--standalone": self.standalone,
            "--initial-controllers": self.initial_controllers is not None,
            "--no-initial-controllers": self.no_initial_controllers,
        }
        given = [option for option, is_given in options.items() if is_given]
        if given and config.controller_quorum_voters:
            raise ConfigError(
                f"{given[0]}: controller.quorum.voters names the voters already; replace it by "
                "controller.quorum.bootstrap.servers for voters that can change"
            )
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)}: give only one of them")
        if given and not config.is_controller:
            raise ConfigError(f"{given[0]}: process.roles lacks controller; leave it out")
        if not given and config.is_controller and not config.controller_quorum_voters:
            raise ConfigError(
                "controller.quorum.voters is not set: give --standalone, --initial-controllers or "
                "--no-initial-controllers"
            )

    def voters(self, config: NodeConfig, directory_id: UUID) -> tuple[Voter, ...]:
        """The voters to write; none where the disk is to tell of none. Raises ConfigError."""
        from raftctl.cli.offline.voters import parse_controllers_with_ids, voter_of

        if self.standalone:
            return (voter_of(config, directory_id),)
        if self.initial_controllers is None:
            return ()
        voters = parse_controllers_with_ids("--initial-controllers", self.initial_controllers)
        if config.node_id not in [voter.replica.node_id for voter in voters]:
            raise ConfigError(
                f"--initial-controllers: node.id={config.node_id} is not among them; format it "
                "with --no-initial-controllers and add it later"
            )
        return voters


def format_storage(
    config: NodeConfig,
    cluster_id: str,
    initial_controllers: str | None = None,
    *,
    first: FirstVoters | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
    ignore_formatted: bool = False,
) -> Sequence[str]:
    """Formats the directories of the node and returns them.

    `initial_controllers` stands for `first` where nothing else is said of the first voters. The
    first active controller writes the `users`.
    ConfigError, with nothing changed, if one belongs to another cluster or node, or is formatted
    already without `ignore_formatted`.
    """
    from raftctl.metadata.codec import pack_payload
    from raftctl.runtime.real import RealFileSystem
    from raftctl.storage import MetaProperties, write_first_records

    first = first or FirstVoters(initial_controllers=initial_controllers)
    first.check(config)
    _check_cluster_id(cluster_id)
    if users and not config.is_controller:
        raise ConfigError("--add-scram: process.roles lacks controller; leave it out")
    voters = first.voters(config, uuid4())
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
    own = [one.replica.directory_id for one in voters if one.replica.node_id == config.node_id]
    for directory in blank:
        files.make_directories(directory)
        directory_id = uuid4()
        if users and directory == config.metadata_directory:
            write_first_records(files, directory, pack_payload(users), len(users))
        if own and directory == config.metadata_directory:
            directory_id = own[0] or directory_id
            _write_voters(directory, voters)
        # Last, since its presence says that the directory is ready.
        MetaProperties(cluster_id, config.node_id, directory_id).save(files, directory)
    return blank


def _write_voters(directory: str, voters: tuple[Voter, ...]) -> None:
    from raftctl.raft.voters import VoterSet
    from raftctl.runtime.real import RealFileSystem
    from raftctl.storage import write_initial_voters

    now_ms = int(time.time() * 1000)
    write_initial_voters(RealFileSystem(), directory, VoterSet(voters, dynamic=True), now_ms)


def _check_cluster_id(cluster_id: str) -> None:
    try:
        parse_uuid(cluster_id)
    except ValueError as error:
        raise ConfigError(f"--cluster-id: {error}; raftctl storage random-uuid makes one") from None
