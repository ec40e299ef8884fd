"""The plug-ins of this project keep the contract, and brokers that do not are found out."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from typing import TYPE_CHECKING, ClassVar

import pytest

from broker.memory import MemoryBroker
from broker.plugin import KafkaBroker
from raftctl.metadata.records import Endpoint
from raftctl.plugins import testkit as contract
from raftctl.runtime.real import RealFileSystem
from tests.kit import example_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.plugins import BrokerContext

pytestmark = pytest.mark.req("P1", "P2")


@pytest.fixture(params=["kafka", "memory", "example"])
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> contract.MakeBroker:
    shipped: dict[str, contract.MakeBroker] = {"kafka": KafkaBroker, "memory": MemoryBroker}
    if request.param in shipped:
        return shipped[request.param]
    path = tmp_path / f"{example_broker.MODULE}.py"
    path.write_text(example_broker.code())
    spec = importlib.util.spec_from_file_location(example_broker.MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make: contract.MakeBroker = module.QuietBroker
    return make


@pytest.mark.parametrize("check", contract.CHECKS, ids=contract.check_name)
async def test_the_contract_is_kept(check: contract.Check, plugin: contract.MakeBroker) -> None:
    await contract.run_check(check, plugin)


class Sound:
    """Keeps the contract; the others change one thing."""

    opened: ClassVar[list[asyncio.Server]] = []
    """Of all brokers of a test, which closes what they leave."""
    made: ClassVar[list[str]] = []
    """Directories on the real disk."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.server: asyncio.Server | None = None

    async def start(self) -> Sequence[Endpoint]:
        [listener] = self.context.config.broker_listeners
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.protocol, listener.host, listener.port)
        self.opened.append(self.server)
        return [Endpoint(listener.name, listener.host, listener.port)]

    def protocol(self) -> asyncio.Protocol:
        return asyncio.Protocol()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        pass

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()


class Hasty(Sound):
    def protocol(self) -> asyncio.Protocol:
        return Echo()


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"at your service")


class Eager(Sound):
    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        context.runtime.files.make_directories(context.config.log_dirs[0])
        context.runtime.files.open(f"{context.config.log_dirs[0]}/f", create=True)


class Nameless(Sound):
    async def start(self) -> Sequence[Endpoint]:
        await super().start()
        return []


class AtPortZero(Sound):
    async def start(self) -> Sequence[Endpoint]:
        return [Endpoint(one.listener, one.host, 0) for one in await super().start()]


class Deaf(Sound):
    """Leaves its listener."""

    async def stop(self) -> None:
        pass


class Assuming(Sound):
    """Takes for granted that it has started."""

    async def stop(self) -> None:
        if self.server is None:
            raise ValueError("it has not started")
        self.server.close()


class Failing(Sound):
    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.deleted_topics:
            self.context.fail(ValueError("cannot delete"))


class PastTheRuntime(Sound):
    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        [directory] = self.context.config.log_dirs
        self.made.append(directory)
        RealFileSystem().make_directories(directory)


class Hanging(Sound):
    async def start(self) -> Sequence[Endpoint]:
        await asyncio.Event().wait()
        return []


class Fixed(Sound):
    """Says the same address whoever it is."""

    async def start(self) -> Sequence[Endpoint]:
        return [Endpoint("PLAINTEXT", "127.0.0.1", 1)]


@pytest.fixture
async def leftovers() -> AsyncIterator[None]:
    """Ends what broken brokers leave."""
    yield
    while Sound.opened:
        Sound.opened.pop().close()
    while Sound.made:
        shutil.rmtree(Sound.made.pop(), ignore_errors=True)


@pytest.mark.usefixtures("leftovers")
async def test_a_sound_broker_is_not_complained_of() -> None:
    assert await contract.violations(Sound) == []


@pytest.mark.usefixtures("leftovers")
@pytest.mark.parametrize(
    ("check", "broken", "complaint"),
    [
        (contract.answers_nobody_before_the_first_image, Hasty, "before the first publish clients"),
        (contract.does_nothing_before_start, Eager, "has not started writes no files"),
        (contract.says_where_it_is_reached, Nameless, "at least one endpoint"),
        (contract.says_where_it_is_reached, AtPortZero, "a port that is bound, not 0"),
        (contract.starts_again, Deaf, "stop closes the listeners"),
        (contract.follows_the_log, Failing, "`fail` was given .ValueError"),
        (contract.follows_the_log, PastTheRuntime, "through context.runtime.files only"),
        (contract.lives_beside_another, Fixed, "the addresses of its own configuration"),
    ],
)
async def test_a_broker_that_breaks_the_contract_is_told_how(
    check: contract.Check, broken: contract.MakeBroker, complaint: str
) -> None:
    with pytest.raises(contract.ContractViolation, match=complaint):
        await contract.run_check(check, broken)


@pytest.mark.usefixtures("leftovers")
async def test_what_a_broker_raises_itself_is_reported_with_the_check() -> None:
    assert await contract.violations(Assuming) == [
        "stops_without_having_started: it has not started",
        "stops_in_the_middle_of_its_start: it has not started",
    ]


async def test_a_broker_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "STEP_TIMEOUT_S", 0.0)
    with pytest.raises(contract.ContractViolation, match="it takes longer than 0 s"):
        await contract.run_check(contract.stops_before_the_first_image, Hanging)
