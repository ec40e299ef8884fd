"""How a client of controllers keeps its password to itself (S7)."""

from __future__ import annotations

import random
import ssl
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from raftctl.client import connect
from raftctl.client._transport import Transport
from raftctl.config.security import ClientLogin, ClientSecurity
from raftctl.errors import ConfigError
from raftctl.http_security import HttpSecurity
from raftctl.runtime.real import RealFileSystem
from raftctl.security.clients import http_security

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("S7")

LOGIN = ("ann", "se:cret")


def test_a_password_is_a_header_and_in_no_repr() -> None:
    security = HttpSecurity(None, LOGIN)
    assert security.headers == {"Authorization": "Basic YW5uOnNlOmNyZXQ="}
    assert "cret" not in repr(security)
    assert HttpSecurity().headers == {}


def test_a_token_is_a_header_and_in_no_repr() -> None:
    security = HttpSecurity(token="abc.def")
    assert security.headers == {"Authorization": "Bearer abc.def"}
    assert "abc" not in repr(security)


def test_a_client_has_a_login_or_a_token() -> None:
    with pytest.raises(ConfigError, match="leave one out"):
        connect("127.0.0.1:9093", login=LOGIN, token="abc.def")


def test_a_client_of_http_sends_a_token_and_never_the_secret_that_it_is_got_with(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("abc.def\n")
    user = ClientLogin("OAUTHBEARER", "ann", SecretStr("cret"), f"file:{tmp_path}/token")
    security = ClientSecurity("SASL_PLAINTEXT", login=user)
    assert http_security(security, RealFileSystem()) == HttpSecurity(token="abc.def")
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match="no token can be had: FileNotFoundError"):
        http_security(security, RealFileSystem())


def test_a_token_does_not_go_to_another_machine_in_the_clear() -> None:
    with pytest.raises(ConfigError, match="a token would go to"):
        HttpSecurity(token="abc.def").check("10.0.0.7:9093")
    HttpSecurity(ssl.create_default_context(), token="abc.def").check("10.0.0.7:9093")


@pytest.mark.parametrize("address", ["10.0.0.7:9093", "controller.example.org:9093", "[::2]:1"])
async def test_a_password_does_not_go_to_another_machine_in_the_clear(address: str) -> None:
    with pytest.raises(ConfigError, match="SASL_SSL"):
        HttpSecurity(None, LOGIN).connection(address, 1.0)
    with pytest.raises(ConfigError, match="SASL_SSL"):
        async with connect(address, login=LOGIN):
            pass
    HttpSecurity(None).connection(address, 1.0).close()
    HttpSecurity(ssl.create_default_context(), LOGIN).connection(address, 1.0).close()


@pytest.mark.parametrize("address", ["127.0.0.1:9093", "localhost:9093", "[::1]:9093"])
async def test_it_may_go_to_this_machine(address: str) -> None:
    HttpSecurity(None, LOGIN).connection(address, 1.0).close()
    await Transport([address], 1.0, random.Random(1), HttpSecurity(None, LOGIN)).close()
