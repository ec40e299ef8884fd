"""What a broker does at start about the keys of an issuer of tokens."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from joserfc import jwk

from broker.authentication import Verifiers
from raftctl.config import make_config
from raftctl.errors import ConfigError
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.runtime.real import RealRuntime
from tests.unit.broker.server import fakes
from tests.unit.broker.server.sasl import OAUTH_KEYS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("S3", "S8")


async def start(url: str) -> str:
    """What is logged while a broker with this URL of keys starts."""
    log = io.StringIO()
    keys = {**fakes.KEYS, **OAUTH_KEYS, "sasl.oauthbearer.jwks.endpoint.url": url}
    config, runtime = make_config(keys), RealRuntime(log)
    settings = config.listener_security("PLAINTEXT").sasl
    assert settings is not None
    try:
        await Verifiers(config, settings, lambda: EMPTY_IMAGE, runtime, "a-cluster").start()
    finally:
        runtime.close()
    return log.getvalue()


async def test_keys_of_a_file_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for content in (None, "", "{}", '{"keys": []}'):
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url=file:.*no keys are there"):
            await start(file.as_uri())
    key = jwk.ECKey.generate_key("P-256", {"kid": "one"})
    file.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    assert await start(file.as_uri()) == ""


async def test_a_server_of_keys_may_come_later() -> None:
    assert "issuer_keys_not_fetched" in await start("http://127.0.0.1:1/keys")


async def test_keys_that_others_could_change_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url=http://issuer/keys: it must be"):
        await start("http://issuer/keys")
