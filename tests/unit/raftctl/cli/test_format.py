"""Who votes first, as `storage format` is told, and voters on the command line."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.cli.main import run
from raftctl.cli.offline.scram_users import parse_scram_user
from raftctl.cli.offline.storage import random_uuid_text
from raftctl.cli.offline.voters import parse_controllers_with_ids, voter_text
from raftctl.errors import ConfigError
from raftctl.ids import uuid_text
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.raft.messages import NodeId, ReplicaKey, Voter
from raftctl.raft.voters import VoterSet
from raftctl.runtime.real import RealFileSystem
from raftctl.security.sasl.scram import salted_password, scram_keys
from raftctl.storage import BOOTSTRAP, METADATA_LOG_NAME, MetaProperties, load_first_records
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.metadata.records import Record

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


# --- users ----------------------------------------------------------------------------------------


def first_records(path: Path) -> list[Record]:
    payload, count = load_first_records(RealFileSystem(), f"{path}/data")
    return unpack_records(payload, count)


@pytest.mark.req("S3")
def test_users_are_written_without_their_passwords(tmp_path: Path) -> None:
    salted = salted_password("sha512", "bob,s", b"some salt", 8192)
    text = (base64.b64encode(one).decode() for one in (salted, b"some salt"))
    by_keys = "SCRAM-SHA-512=[name=bob,saltedpassword={},salt={},iterations=8192]".format(*text)
    users = ("SCRAM-SHA-256=[name=alice,password=alice-secret]", by_keys)
    options = [one for user in users for one in ("--add-scram", user)]
    assert format_as(tmp_path, "--standalone", *options) == 0
    alice, bob = first_records(tmp_path)
    assert isinstance(alice, UserScramCredentialRecord)
    assert (alice.user, alice.mechanism, alice.iterations) == ("alice", 1, 4096)
    expected = scram_keys("sha256", salted_password("sha256", "alice-secret", alice.salt, 4096))
    assert (alice.stored_key, alice.server_key) == expected
    expected = scram_keys("sha512", salted)
    assert bob == UserScramCredentialRecord("bob", 2, b"some salt", *expected, 8192)
    written = b"".join(p.read_bytes() for p in (tmp_path / "data").rglob("*") if p.is_file())
    assert b"alice-secret" not in written


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ("SCRAM-SHA-1=[name=a,password=S3]", "malformed"),
        ("name=a,password=S3", "malformed"),
        ("SCRAM-SHA-256=[password=S3]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=S3,saltedpassword=S3]", "either password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=S3AA]", "needs the salt"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=S3AA,salt=AAAA]", "as long as"),
        ("SCRAM-SHA-256=[name=a,password=S3,salt=?]", "no Base64"),
        ("SCRAM-SHA-256=[name=a,password=S3,salt=]", "salt is empty"),
        ("SCRAM-SHA-256=[name=a,password=S3,iterations=4095]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=S3,password=S3]", "malformed after"),
        ("SCRAM-SHA-256=[name=a,word=S3]", "malformed after"),
    ],
)
def test_a_malformed_user_is_refused_without_its_secret(user: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_scram_user(user)
    assert "S3" not in str(refused.value)


@pytest.mark.req("S3")
def test_a_password_with_a_comma_stands_in_quotes() -> None:
    record = parse_scram_user('SCRAM-SHA-256=[name="a,b",password="c,d=e"]')
    expected = scram_keys("sha256", salted_password("sha256", "c,d=e", record.salt, 4096))
    assert (record.user, record.stored_key) == ("a,b", expected.stored_key)


@pytest.mark.req("S3")
def test_only_a_controller_begins_with_users(tmp_path: Path) -> None:
    option = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]")
    more = {"process_roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
    assert format_as(tmp_path, *option, **more) != 0
    assert not (tmp_path / "data").exists()


@pytest.mark.req("S3")
def test_a_damaged_file_of_users_is_refused(tmp_path: Path) -> None:
    option = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]")
    assert format_as(tmp_path, "--standalone", *option) == 0
    file = tmp_path / "data" / "bootstrap.records"
    whole = file.read_bytes()
    for damaged in (b"", whole[:5], whole[:-1], whole[:20] + b"x" + whole[21:]):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"bootstrap\.records"):
            first_records(tmp_path)
