"""The way to brokers of a node that may never need one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from raftctl.config import make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.plugins import ANY_BROKER, LazyBrokerClient, _lazy_client
from raftctl.runtime.real import RealRuntime
from raftctl.security import ANONYMOUS, Requester

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("W1")
KEYS = {
    "process.roles": "controller",
    "node.id": "1",
    "log.dirs": "/nowhere",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:1",
    "controller.quorum.voters": "1@127.0.0.1:1",
}
WHO = Requester(ANONYMOUS, "127.0.0.1")


@pytest.fixture
def runtime() -> Iterator[RealRuntime]:
    """The system's."""
    made = RealRuntime(io.StringIO())
    yield made
    made.close()


def lazy(runtime: RealRuntime, **keys: str) -> LazyBrokerClient:
    config = make_config({**KEYS, **{key.replace("_", "."): keys[key] for key in keys}})
    return LazyBrokerClient(config, runtime, lambda: EMPTY_IMAGE, lambda: None)


async def refusal(client: LazyBrokerClient) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await client.ask(ANY_BROKER, "LIST_GROUPS", {}, WHO, 1_000)
    return caught.value


async def test_the_plug_in_of_the_configuration_asks(runtime: RealRuntime) -> None:
    client = lazy(runtime)
    found = await refusal(client)
    assert (found.code, found.message) == (
        ErrorCode.BROKER_NOT_AVAILABLE,
        "no broker is there: start one",
    )
    assert await client.read(b"", 0, 1, 1) == []
    await client.close()


async def test_a_plug_in_that_is_not_there_is_named_with_its_key(runtime: RealRuntime) -> None:
    client = lazy(runtime, broker_plugin="absent")
    found = await refusal(client)
    assert found.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert found.message.startswith("broker.plugin: no plug-in 'absent'")
    await client.close()


class Silent:
    """A plug-in whose brokers cannot be asked."""

    loads: ClassVar[list[str]] = []


async def test_a_plug_in_without_a_client_is_loaded_when_it_is_asked(
    runtime: RealRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> Any:
        Silent.loads.append(name)
        return Silent

    monkeypatch.setattr(_lazy_client, "load_broker", load)
    client = lazy(runtime)
    assert Silent.loads == []
    found = await refusal(client)
    assert "brokers of the plug-in 'kafka' cannot be asked" in found.message
    assert Silent.loads == ["kafka"]
    await client.close()
    await client.close()
