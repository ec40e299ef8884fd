"""Rules of access in the deterministic world: a test of the harness, judged as a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.core.spec import RunSpec
from jepsen.environments import Security
from jepsen.simulator import environment

if TYPE_CHECKING:
    from jepsen.simulator.world import World

CHECKER = "acl"


async def rules_hold(world: World) -> None:
    """Rules come and go while brokers and controllers are killed, and every broker is asked."""
    world.test = RunSpec(
        CHECKER,
        "sim",
        ("kill",),
        time_limit_s=15.0,
        rate=60.0,
        concurrency=8,
        interval_s=2.0,
        seed=world.seed,
        security=Security.SASL_PLAINTEXT,
    )
    world.checkers.append(CHECKER)
    await environment.run_test(world)
