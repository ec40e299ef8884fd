"""Access control, credentials and quotas, from the command line to the controller's metadata."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.kafka.access import users
from raftctl.cli.main import BAD_INPUT, FAILED
from raftctl.errors import ConfigError
from tests.unit.broker.apis.controlled import listening
from tests.unit.raftctl.cli.command_line import CommandLine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("C12", "A1")


# --- access control -------------------------------------------------------------------------------


async def test_acls(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        two = ("--topic", "t", "--group", "g")
        who = ("--allow-principal", "User:a", "--deny-principal", "User:b")
        where = ("--deny-host", "10.0.0.1")
        what = ("--operation", "Read", "--operation", "describeconfigs")
        added = await raftctl.json("acls", "add", "--topic", "t", *who, *where, *what)
        assert [tuple(one.values()) for one in added] == [
            ("topic", "t", "literal", "User:a", "*", "DescribeConfigs", "allow"),
            ("topic", "t", "literal", "User:a", "*", "Read", "allow"),
            ("topic", "t", "literal", "User:b", "10.0.0.1", "DescribeConfigs", "deny"),
            ("topic", "t", "literal", "User:b", "10.0.0.1", "Read", "deny"),
        ]
        assert len(broker.cluster.image.acls) == 4
        allowing = ("--allow-principal", "User:c", "--operation", "All")
        prefixed = ("--resource-pattern-type", "prefixed")
        await raftctl.json("acls", "add", *two, *allowing, *prefixed)
        await raftctl.json("acls", "add", "--cluster", "--transactional-id", "x", *allowing)
        assert len(await raftctl.json("acls", "list")) == 8
        assert len(await raftctl.json("acls", "list", "--principal", "User:c")) == 4
        assert len(await raftctl.json("acls", "list", "--cluster", "--topic", "t")) == 6
        matching = ("--topic", "task", "--resource-pattern-type", "match")
        (one,) = await raftctl.json("acls", "list", *matching)
        assert one["pattern_type"] == "prefixed"


async def test_acls_are_removed_as_shown_before(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        who = ("--allow-principal", "User:a", "--allow-principal", "User:b")
        what = ("--operation", "Read", "--operation", "Write")
        await raftctl.json("acls", "add", "--topic", "t", *who, *what)
        removing = ("acls", "remove", "--topic", "t", "--allow-principal", "User:a")
        shown = await raftctl.json(*removing, "--dry-run")
        assert len(shown) == 2
        assert len(broker.cluster.image.acls) == 4
        assert await raftctl.json(*removing) == shown
        assert await raftctl.json(*removing) == []
        status, out, _ = await raftctl.status(
            "acls", "remove", "--topic", "t", "--operation", "Read"
        )
        assert status == 0
        assert [line.split() for line in out.splitlines()] == [
            ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"],
            ["topic", "t", "literal", "User:b", "*", "Read", "allow"],
        ]
        assert len(broker.cluster.image.acls) == 1


@pytest.mark.req("A2")
async def test_acls_with_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    topic, who = ("--topic", "t"), ("--allow-principal", "User:a")
    read = ("--operation", "Read")
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        for arguments, told in [
            (("add", *who, *read), "name a resource"),
            (("add", *topic, *read), "name a principal"),
            (("add", *topic, *who), "name an operation"),
            (("add", *topic, *read, "--allow-principal", "alice"), "write User:NAME"),
            (("add", *topic, *read, *who, "--deny-host", "h"), "name a --deny-principal"),
            (
                ("add", *topic, *read, *who, "--resource-pattern-type", "match"),
                "either literal or prefixed",
            ),
            (("add", *topic, *who, "--operation", "Fly"), "'Fly' is not one of"),
            (("remove", *who), "name a resource"),
        ]:
            status, _, err = await raftctl.status("acls", *arguments)
            assert (status, told in err) == (BAD_INPUT, True), (arguments, err)
        assert not broker.cluster.image.acls


# --- users ----------------------------------------------------------------------------------------


async def test_users(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("pencil\nnot this\n")
    given = ("--password-file", str(password))
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        assert await raftctl.json("users", "list") == []
        setting = ("users", "set", "alice", *given)
        status, out, err = await raftctl.status(*setting)
        assert (status, out) == (0, "set the password of alice for SCRAM-SHA-512\n")
        assert "warning" not in err
        await raftctl.json(*setting, "--mechanism", "scram-sha-256", "--iterations", "4096")
        await raftctl.json("users", "set", "bob", *given)
        found = await raftctl.json("users", "list")
        assert [tuple(one.values()) for one in found] == [
            ("alice", "SCRAM-SHA-256", 4096),
            ("alice", "SCRAM-SHA-512", 8192),
            ("bob", "SCRAM-SHA-512", 8192),
        ]
        assert await raftctl.json("users", "list", "--user", "bob") == found[2:]
        deleting = ("users", "delete", "alice", "--mechanism", "SCRAM-SHA-512")
        assert (await raftctl.json(*deleting))["deleted"] == "alice"
        assert sorted(broker.cluster.image.scram) == [("alice", 1), ("bob", 2)]
        for arguments in (deleting, ("users", "list", "--user", "nobody")):
            status, _, err = await raftctl.status(*arguments)
            assert (status, "RESOURCE_NOT_FOUND" in err) == (FAILED, True), err


@pytest.mark.req("A2")
def test_where_a_password_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    for content, told in ((None, "cannot be read"), ("\nx", "first line is empty")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigError, match=told):
            users.read_password(str(path))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(ConfigError, match="FILE is needed"):
        users.read_password(None)
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin\r\nnot this"))
    assert users.read_password("-") == "from stdin"


# --- quotas ---------------------------------------------------------------------------------------


@pytest.mark.req("C9")
async def test_quotas(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        rates = ("--set", "producer_byte_rate=1048576", "--set", "request_percentage=12.5")
        altering = ("quotas", "alter", "--user", "alice", *rates)
        status, out, _ = await raftctl.status(*altering, "--validate-only")
        told = "could alter user alice: producer_byte_rate, request_percentage\n"
        assert (status, out) == (0, told)
        assert not broker.cluster.image.client_quotas
        assert (await raftctl.json(*altering))["altered"]
        both = ("--user-defaults", "--client-id", "app")
        await raftctl.json("quotas", "alter", *both, "--set", "consumer_byte_rate=5")
        await raftctl.json(
            "quotas", "alter", "--ip-defaults", "--set", "connection_creation_rate=9"
        )
        status, out, _ = await raftctl.status("quotas", "describe")
        assert status == 0
        assert sorted(line.split() for line in out.splitlines()) == [
            ["-", "-", "<default>", "connection_creation_rate", "9"],
            ["<default>", "app", "-", "consumer_byte_rate", "5"],
            ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
            ["alice", "-", "-", "producer_byte_rate", "1048576"],
            ["alice", "-", "-", "request_percentage", "12.5"],
        ]
        (found,) = await raftctl.json("quotas", "describe", "--client-id", "app")
        assert found["entity"] == {"user": None, "client-id": "app"}
        assert await raftctl.json("quotas", "describe", "--client-id", "app", "--strict") == []
        changing = ("--delete", "request_percentage", "--set", "producer_byte_rate=7")
        await raftctl.json("quotas", "alter", "--user", "alice", *changing)
        (found,) = await raftctl.json("quotas", "describe", "--user", "alice", "--strict")
        assert found["quotas"] == {"producer_byte_rate": 7.0}
        status, _, err = await raftctl.status("quotas", "alter", "--user", "a", "--set", "x=1")
        assert (status, "INVALID_REQUEST: There is no quota x" in err) == (FAILED, True)


@pytest.mark.req("A2")
async def test_quotas_with_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    rate = ("--set", "producer_byte_rate=1")
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        for arguments, told in [
            (("alter", *rate), "name whose quota it is"),
            (("alter", "--user", "a"), "nothing to change"),
            (("alter", "--user", "a", "--set", "x"), "write key=value"),
            (("alter", "--user", "a", "--set", "x=much"), "must be a number above 0"),
            (("alter", "--user", "a", "--set", "x=inf"), "must be a number above 0"),
            (("alter", "--user", "a", *rate, "--delete", "producer_byte_rate"), "--delete, too"),
            (("alter", "--user", "a", "--user-defaults", *rate), "either --user or"),
            (("alter", "--user", "", *rate), "--user is empty"),
            (("alter", "--user", "a", "--ip", "::1", *rate), "no user and no client id"),
            (("describe", "--strict"), "name a --user"),
        ]:
            status, _, err = await raftctl.status("quotas", *arguments)
            assert (status, told in err) == (BAD_INPUT, True), (arguments, err)
        assert not broker.cluster.image.client_quotas
