"""A short slice of `make fuzz`, and the same by Hypothesis: no crash, no hang, nothing kept."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.protocol import codec
from broker.protocol._schema import load
from broker.protocol.versions import SERVED
from tests.fuzz.mutation import generated, mutated
from tests.fuzz.run import finish, fuzz
from tests.fuzz.target import Target, fuzzed
from tests.kit.pieces import decode_request
from tests.unit.broker.protocol.strategies import messages
from tests.unit.broker.replication.world import TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("N3")
WAITS = {"max_wait_ms": 1, "timeout_ms": 1}


@pytest.mark.parametrize("seed", [11, 15])
async def test_random_frames(seed: int) -> None:
    """One of the runs begins with a sound request of every API, as real clients send them."""
    lines: list[str] = []
    outcome = await fuzz(1_200, seed, with_clients=seed == 11, progress=lines.append)
    keys = {int.from_bytes(frame[4:6], "big") for frame in outcome.captured}
    assert keys == ({int(key) for key in SERVED} if seed == 11 else set())
    for frame in outcome.captured:
        decode_request(frame[4:])
    assert outcome.seen["closed"] > 100
    assert outcome.seen["answered"] > 100
    assert outcome.seen["leading"] > 1


def test_a_run_is_repeated_by_its_seed() -> None:
    def frames(seed: int) -> list[bytes]:
        chance = random.Random(seed)
        made = [generated(chance, TOPIC_ID) for _ in range(20)]
        return [mutated(frame, made[0], chance) for frame in made]

    assert frames(3) == frames(3) != frames(4)


@pytest.fixture
def exchange() -> Iterator[Any]:
    """Sends a frame to one broker for all examples."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        target: Target = runner.run(stack.enter_async_context(fuzzed()))
        yield lambda frame: runner.run(target.exchange(frame))
        runner.run(finish(target))
        runner.run(stack.aclose())


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request of any api and version, its fields anything that the types allow."""
    key = draw(st.sampled_from(sorted(SERVED)))
    version = draw(st.sampled_from(list(SERVED[key])))
    message = draw(messages(load(key, version, "request")))
    waits = {name: wait for name, wait in WAITS.items() if name in message}
    return codec.encode_request(key, version, 1, draw(st.text(max_size=9)), message | waits)


@given(frame=requests() | st.binary(max_size=60).map(lambda b: len(b).to_bytes(4, "big") + b))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_frames_by_hypothesis(exchange: Any, frame: bytes) -> None:
    exchange(frame)
