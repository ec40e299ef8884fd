"""`raftctl tokens` against a broker whose clients log in."""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.kafka.access.tokens import read_hmac
from raftctl.cli.main import BAD_INPUT, FAILED
from raftctl.controller import ControllerConfig
from raftctl.errors import ConfigError, ErrorCode
from raftctl.security.delegation_tokens import TokenSecret
from tests.unit.broker.apis.controlled import listening
from tests.unit.broker.server.sasl import KEYS
from tests.unit.raftctl.cli.command_line import CommandLine
from tests.unit.raftctl.cli.test_command_config import login, written
from tests.unit.raftctl.controller.cluster import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.broker.apis.controlled import ControlledBroker

pytestmark = pytest.mark.req("S3", "S7")
KEY = "s3cret of the cluster"


@asynccontextmanager
async def a_broker(key: str = KEY) -> AsyncIterator[ControlledBroker]:
    secret = TokenSecret(key) if key else None
    config = ControllerConfig(cluster_id=CLUSTER_ID, leader_rebalance=False, token_secret=secret)
    async with listening(config, **KEYS, **{"delegation.token.secret.key": key}) as broker:
        yield broker


async def test_the_life_of_a_token(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "hmac"
    named = ("--hmac-file", str(file))
    async with a_broker() as broker:
        raftctl, as_alice = CommandLine(capsys, broker), written(tmp_path / "alice", login())
        assert await raftctl.json("tokens", "list", *as_alice) == []
        people = ("--owner-principal", "User:bob", "--renewer-principal", "User:alice")
        made = await raftctl.json("tokens", "create", *people, *as_alice)
        digest = hmac.digest(KEY.encode(), made["token_id"].encode(), hashlib.sha512)
        assert made == {
            "token_id": made["token_id"],
            "hmac": base64.b64encode(digest).decode(),
            "owner": "User:bob",
            "expires": "2023-11-15T22:13:20Z",
            "ends": "2023-11-21T22:13:20Z",
        }
        file.write_text(made["hmac"] + "\n")
        (listed,) = await raftctl.json("tokens", "list", *as_alice)
        assert listed == {
            "token_id": made["token_id"],
            "owner": "User:bob",
            "requester": "User:alice",
            "renewers": ["User:alice"],
            "issued": "2023-11-14T22:13:20Z",
            "expires": "2023-11-15T22:13:20Z",
            "ends": "2023-11-21T22:13:20Z",
        }
        owner = ("--owner-principal", "User:eve")
        assert await raftctl.json("tokens", "list", *owner, *as_alice) == []
        status, out, _ = await raftctl.status("tokens", "list", *as_alice)
        assert (status, made["hmac"] in out) == (0, False)
        hour = ("--renew-time-period", "3600000")
        renewed = await raftctl.json("tokens", "renew", *named, *hour, *as_alice)
        assert renewed == {"expires": "2023-11-14T23:13:20Z"}
        later = ("--expiry-time-period", "60000")
        status, out, _ = await raftctl.status("tokens", "expire", *named, *later, *as_alice)
        assert (status, out) == (0, "the token expires at 2023-11-14T22:14:20Z\n")
        status, out, _ = await raftctl.status("tokens", "expire", *named, *as_alice)
        assert (status, out) == (0, "removed the token\n")
        assert not broker.cluster.image.tokens
        status, _, err = await raftctl.status("tokens", "renew", *named, *as_alice)
        assert (status, ErrorCode.DELEGATION_TOKEN_NOT_FOUND.name in err) == (FAILED, True)


async def test_words_of_apache_kafkas_tool(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with a_broker() as broker:
        raftctl, as_alice = CommandLine(capsys, broker), written(tmp_path / "alice", login())
        tool = "kafka-delegation-tokens.sh"
        creating = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        status, out, _ = await raftctl.status(tool, *as_alice, *creating)
        assert (status, "hmac" in out) == (0, True)
        assert len(await raftctl.json(tool, "--describe", *as_alice)) == 1
        secret = ("--expire", "--expiry-time-period", "-1", "--hmac", "c2VjcmV0")
        status, _, err = await raftctl.status(tool, *as_alice, *secret)
        assert (status, "--hmac-file" in err, "c2VjcmV0" in err) == (BAD_INPUT, True, False)


async def test_what_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with a_broker("") as broker:
        raftctl, as_alice = CommandLine(capsys, broker), written(tmp_path / "alice", login())
        for command in ("create", "list"):
            status, _, err = await raftctl.status("tokens", command, *as_alice)
            assert (status, "DELEGATION_TOKEN_AUTH_DISABLED" in err) == (FAILED, True), err
        for option in ("--owner-principal", "--renewer-principal"):
            status, _, err = await raftctl.status("tokens", "create", option, "alice", *as_alice)
            assert (status, "write User:NAME" in err) == (BAD_INPUT, True), err


def test_where_an_hmac_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "hmac"
    for content, why in ((None, "cannot be read"), ("", "no HMAC"), ("s3cret!", "no HMAC")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigError, match=why) as raised:
            read_hmac(str(path))
        assert "s3cret" not in str(raised.value)
    path.write_text("c2VjcmV0\nnot this")
    assert read_hmac(str(path)) == b"secret"
