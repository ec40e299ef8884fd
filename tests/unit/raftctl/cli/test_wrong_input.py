"""Every command with wrong input: one line that names the field, the right status, no traceback."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

import pytest
import typer

from raftctl.cli import main
from raftctl.cli.app import make_app
from raftctl.cli.main import BAD_INPUT, FAILED, run
from tests.unit.broker.apis.controlled import listening
from tests.unit.raftctl.cli.command_line import CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = "127.0.0.1:1"
FOREVER = str(2**63)


def commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words."""
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from commands((*path, name), child)
    if not children:
        yield path, command


COMMANDS = dict(commands((), typer.main.get_command(make_app())))


@pytest.mark.req("A1", "A2")
def test_every_command_prints_tables_and_json() -> None:
    """A node writes its log, a shell's completion is a script, and events are always JSON."""
    events = {("verifiable-producer",), ("verifiable-consumer",)}
    without = {("start",), ("completion",), *events}
    for words, command in COMMANDS.items():
        options = {name: one for one in command.params for name in one.opts}
        metavar = getattr(options.get("--output"), "metavar", None)
        assert metavar == (None if words in without else "table|json"), words


@pytest.mark.req("A1", "A2")
def test_every_command_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    for words in COMMANDS:
        assert run([*words, "--no-such-option"]) == BAD_INPUT, words
        told = capsys.readouterr()
        assert (told.out, "--no-such-option" in told.err) == ("", True), words


def asking(option: str, address: str) -> list[list[str]]:
    """The commands that ask the nodes which this option names, with what else they need."""
    found = []
    for words, command in COMMANDS.items():
        if not any(option in one.opts and "HOST" in (one.metavar or "") for one in command.params):
            continue
        given = [*words, option, address]
        for one in command.params:
            if one.required and option not in one.opts:
                given += [one.opts[0], "1"] if one.opts[0].startswith("-") else ["1"]
        found.append(given)
    return found


@pytest.mark.req("A1", "A2")
@pytest.mark.parametrize("option", ["--bootstrap-server", "--controllers"])
@pytest.mark.parametrize("address", ["", "nowhere", "h:", ":1", "h:x", "h:70000", "a:1,b"])
def test_what_is_no_address_is_told_at_once(
    option: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers' addresses are looked at before anything else, in all commands alike."""
    if option == "--controllers":
        asked = [["kv", "get", "k", option, address], ["status", option, address]]
    else:
        asked = asking(option, address)
        assert len(asked) > 40
    for words in asked if address == "nowhere" else asked[:2]:
        assert run(words) == BAD_INPUT, words
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"raftctl: {option}"), words
        assert "host:port" in line


@pytest.mark.req("A1", "A2")
@pytest.mark.parametrize(
    "words",
    [
        ("kv", "get", "k"),
        ("kv", "put", "k", "v"),
        ("kv", "list"),
        ("kv", "watch", "k"),
        ("kv", "lock", "l", "--", "true"),
        ("kv", "elect", "e", "--listen"),
        ("quorum", "describe", "--status"),
        ("quorum", "transfer", "--to", "1"),
        ("metadata", "shell", "ls"),
    ],
)
def test_no_controller_answers(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--controllers", NOBODY, "--timeout", "0.5"]
    cut = words.index("--") if "--" in words else len(words)
    assert run([*words[:cut], *at, *words[cut:]]) == FAILED
    told = capsys.readouterr()
    assert told.out == ""
    assert f"BROKER_NOT_AVAILABLE: no controller answers at {NOBODY}" in told.err
    assert "--controllers" in told.err


BY_A_BROKER: list[tuple[tuple[str, ...], int, str]] = [
    (("users", "list", "--user", ""), BAD_INPUT, "--user is empty"),
    (("users", "set", "", "--password-file", "/dev/null"), BAD_INPUT, "USER is empty"),
    (("users", "delete", "", "--mechanism", "SCRAM-SHA-512"), BAD_INPUT, "USER is empty"),
    (("users", "delete", "u", "--mechanism", "PLAIN"), BAD_INPUT, "--mechanism"),
    (("users", "delete", "u", "--mechanism", "scram-sha-512"), FAILED, "RESOURCE_NOT_FOUND"),
    (("users", "set", "u", "--iterations", "x"), BAD_INPUT, "--iterations"),
    (("topics", "create", ""), BAD_INPUT, "TOPIC is empty"),
    (("groups", "describe", ""), BAD_INPUT, "GROUP is empty"),
    (("groups", "delete", "g", ""), BAD_INPUT, "GROUP is empty"),
    (("groups", "list", "--state", "Tired"), BAD_INPUT, "--state Tired: unknown value; choose"),
    (("groups", "reset-offsets", "g", "--to", f"time={FOREVER}"), BAD_INPUT, "number is above"),
    (("groups", "reset-offsets", "g", "--to", f"shift=-{FOREVER}"), BAD_INPUT, "number is above"),
    (("offsets", "--time", FOREVER), BAD_INPUT, f"--time {FOREVER}: must be"),
    (("transactions", "list", "--state", "Tired"), BAD_INPUT, "--state Tired: unknown value"),
    (("transactions", "describe", ""), BAD_INPUT, "TRANSACTIONAL-ID is empty"),
    (("transactions", "find-hanging", "--topic", "u"), FAILED, "UNKNOWN_TOPIC_OR_PARTITION: no"),
    (
        ("transactions", "find-hanging", "--topic", "t", "--partition", "9"),
        FAILED,
        "UNKNOWN_TOPIC_OR_PARTITION: no partition t-9",
    ),
    (
        ("transactions", "describe-producers", "--topic", "u", "--partition", "0"),
        FAILED,
        "UNKNOWN_TOPIC_OR_PARTITION: The following partitions are not known",
    ),
    (("brokers", "log-dirs", "--broker", "9"), FAILED, "there is no broker 9 now; there are 1,"),
    (("features", "upgrade", "--feature", "x"), BAD_INPUT, "write NAME=LEVEL"),
    (("features", "upgrade", "--feature", "x=1"), FAILED, "There is no feature x; there are"),
    (("quotas", "alter", "--user", "a", "--delete", "x"), FAILED, "There is no quota x of this"),
    (
        ("acls", "add", "--topic", "t", "--operation", "Read"),
        BAD_INPUT,
        "name a principal: --allow-princ",
    ),
]


@pytest.mark.req("A1", "A2")
async def test_what_makes_no_sense_to_a_broker_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        for words, expected, told in BY_A_BROKER:
            status, out, err = await raftctl.status(*words)
            assert (status, out) == (expected, ""), (words, err)
            assert told in " ".join(err.split()), (words, err)
            assert "Error]" not in err
            assert "Response(" not in err


@pytest.mark.req("A2")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--session-timeout", "0"), "--session-timeout"),
        (("--session-timeout", "601"), "--session-timeout"),
        (("--wait", "-1"), "--wait"),
    ],
)
def test_times_of_locks_have_bounds(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kv", "lock", "l", "--controllers", NOBODY, *words, "--", "true"]) == BAD_INPUT
    assert told in capsys.readouterr().err


@pytest.mark.req("A2")
def test_a_metadata_log_that_is_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{0:020}.log").write_bytes(b"not a log at all" * 9)
    assert run(["metadata", "shell", "ls", "--directory", str(tmp_path)]) == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"raftctl: {tmp_path}/{0:020}.log: byte 0: ")
    assert run(["metadata", "shell", "ls", "--directory", ""]) == BAD_INPUT


@pytest.mark.req("A2", "L10")
def test_log_verify_tells_programs_what_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020}.log").write_bytes(b"no batch" * 20)
    assert run(["log", "verify", str(partition), "--output", "json"]) == FAILED
    document = json.loads(capsys.readouterr().out)
    (problem,) = document["problems"]
    assert (document["files"], problem["byte"]) == (1, 0)
    assert problem["file"].endswith("t-0/00000000000000000000.log")


@pytest.mark.parametrize("place", ["/proc/no-such-thing", "FILE/cluster"])
def test_a_folder_that_cannot_be_made_is_one_line(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a folder")
    directory = place.replace("FILE", str(taken))
    assert run(["up", "--dir", directory]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"raftctl: {directory}")
    assert line.endswith("choose another path, or change who may use this one")


def test_what_the_system_refuses_without_a_path_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(main, "_dispatch", refuse)
    assert run(["status"]) == 1
    assert capsys.readouterr().err == "raftctl: Cannot allocate memory\n"
