"""How a client of controllers keeps its password to itself (S7)."""

from __future__ import annotations

import random
import ssl

import pytest

from raftctl.client import connect
from raftctl.client._transport import Transport
from raftctl.errors import ConfigError
from raftctl.http_security import HttpSecurity

pytestmark = pytest.mark.req("S7")

LOGIN = ("ann", "se:cret")


def test_a_password_is_a_header_and_in_no_repr() -> None:
    security = HttpSecurity(None, LOGIN)
    assert security.headers == {"Authorization": "Basic YW5uOnNlOmNyZXQ="}
    assert "cret" not in repr(security)
    assert HttpSecurity().headers == {}


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
