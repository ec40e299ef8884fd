"""Who votes first, as `storage format` is told, and voters on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.cli.main import run
from raftctl.cli.offline.storage import random_uuid_text
from raftctl.cli.offline.voters import parse_controllers_with_ids, voter_text
from raftctl.errors import ConfigError
from raftctl.ids import uuid_text
from raftctl.raft.messages import NodeId, ReplicaKey, Voter
from raftctl.raft.voters import VoterSet
from raftctl.runtime.real import RealFileSystem
from raftctl.storage import BOOTSTRAP, METADATA_LOG_NAME, MetaProperties
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY_ID = uuid_text(UUID(int=5))
OTHER_ID = uuid_text(UUID(int=6))
BOTH = f"1@localhost:9093:{DIRECTORY_ID},2@[::1]:9093:{OTHER_ID}"


def config(path: Path, **more: str) -> str:
    values = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "CONTROLLER://localhost:9093",
        "log.dirs": str(path / "data"),
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    file = path / "node.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items() if value))
    return str(file)


def format_as(path: Path, *options: str, **more: str) -> int:
    arguments = ["--config", config(path, **more), "--cluster-id", random_uuid_text(), *options]
    return run(["storage", "format", *arguments])


def first_voters(path: Path) -> VoterSet | None:
    directory = f"{path}/data/{METADATA_LOG_NAME}"
    return SnapshotStore(RealFileSystem(), directory).read(BOOTSTRAP).voters


@pytest.mark.req("Q7", "A1")
def test_the_initial_controllers_are_written_and_their_directory_id_is_taken(
    tmp_path: Path,
) -> None:
    assert format_as(tmp_path, "--initial-controllers", BOTH) == 0
    voters = parse_controllers_with_ids("--initial-controllers", BOTH)
    assert first_voters(tmp_path) == VoterSet(voters, dynamic=True)
    found = MetaProperties.load(RealFileSystem(), str(tmp_path / "data"))
    assert found is not None
    assert found.directory_id == UUID(int=5)
    assert ",".join(map(voter_text, voters)) == BOTH


@pytest.mark.req("Q7", "A1")
def test_a_standalone_controller_is_the_only_voter(tmp_path: Path) -> None:
    assert format_as(tmp_path, "--standalone") == 0
    found = MetaProperties.load(RealFileSystem(), str(tmp_path / "data"))
    assert found is not None
    own = Voter(ReplicaKey(NodeId(1), found.directory_id), "localhost", 9093)
    assert first_voters(tmp_path) == VoterSet([own], dynamic=True)


@pytest.mark.req("Q7", "A1")
def test_who_joins_later_knows_no_voters(tmp_path: Path) -> None:
    assert format_as(tmp_path, "--no-initial-controllers") == 0
    assert not (tmp_path / "data" / METADATA_LOG_NAME).exists()


STATIC = {"controller_quorum_voters": "1@localhost:9093"}
BROKER = {"process_roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}


@pytest.mark.req("A2")
@pytest.mark.parametrize(
    ("options", "keys", "remedy"),
    [
        ([], {}, "give --standalone, --initial-controllers or"),
        (["--standalone", "--no-initial-controllers"], {}, "give only one of them"),
        (["--standalone"], STATIC, "controller.quorum.voters names the voters already"),
        (["--standalone"], BROKER, "process.roles lacks controller"),
        (["--standalone"], {"listeners": "CONTROLLER://localhost:0"}, "give one"),
        (["--standalone"], {"listeners": "CONTROLLER://0.0.0.0:9093"}, "set advertised.listeners"),
        (["--initial-controllers", f"2@h:1:{OTHER_ID}"], {}, "node.id=1 is not among them"),
        (["--initial-controllers", "1@h:1:x"], {}, "--initial-controllers: directory id 'x'"),
        (["--initial-controllers", f"1@h:1:{'A' * 22}"], {}, "zero stands for none"),
        (["--initial-controllers", f"1@h:{OTHER_ID}"], {}, "--initial-controllers: "),
        (["--initial-controllers", ""], {}, "--initial-controllers is empty"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    keys: dict[str, str],
    remedy: str,
) -> None:
    assert format_as(tmp_path, *options, **keys) == 2
    complaint = capsys.readouterr().err
    assert remedy in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.req("Q7")
def test_no_two_voters_have_one_directory() -> None:
    with pytest.raises(ConfigError, match="a directory id appears twice"):
        parse_controllers_with_ids("--voter", f"1@h:1:{OTHER_ID},2@h:2:{OTHER_ID}")


def test_one_voter_is_added_at_a_time() -> None:
    with pytest.raises(ConfigError, match="appears twice"):
        parse_controllers_with_ids("--voter", f"1@h:1:{OTHER_ID},1@h:2:{OTHER_ID}")
    assert run(["quorum", "add-voter", "--controllers", "h:1", "--voter", BOTH]) == 2
    assert run(["quorum", "add-voter", "--controllers", "h:1"]) == 2
