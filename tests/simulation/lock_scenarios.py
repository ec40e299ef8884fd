"""Programs that share locks while controllers and programs are broken; nobody may be fooled.

Each worker holds the lock for a while and writes under it; one that was paused writes on with the
token of before, as a program that was held up does. What they did is judged from outside: by what
they believed at which time, paused or not, and by the events of the log.
"""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import CONTROLLER_PORT, Observer, SimCluster
from jepsen.simulator.network import Link
from raftctl.client import OutcomeUnknownError, connect
from raftctl.errors import ErrorCode, KafkaError
from raftctl.runtime.lease_clock import lease_time
from tests.simulation.kv_scenarios import FAULTS, break_and_heal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from jepsen.simulator.world import SimRuntime, World
    from raftctl.client import Client, Event, Lock, Session

WORKERS = 4
LOCK = "lock"
GUARDED = "guarded"
"""What the holder writes: its token."""
MEMBERS = "members/"
SESSION_S = 1.5
HOLD_S = 1.0
LATE_ACQUISITIONS = 5
LATE_ANSWERS_MS = 350.0
"""How long answers to a holder are on their way, as long as a session survives that."""
LOOK_S = 0.005
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
"""So that restarted controllers begin with sessions from a snapshot; the log is kept as well."""
PATIENCE_S = 60.0
POLL_S = 0.1


class Judge:
    """What workers believed and did."""

    def __init__(self) -> None:
        self._minds: dict[str, contextvars.Context] = {}
        """Where each of them believes it: by its own clock."""
        self.believers: dict[str, Lock] = {}
        """Who was told that it holds the lock, and has not given it back: paused or not."""
        self.acquired = 0
        self.refused = 0
        """Writes of tokens that were stale."""
        self.tried = 0
        """Writes of tokens that were known to be stale, whatever was answered."""
        self.closed_early: list[str] = []
        """Sessions that were over before their time."""

    def enters(self, worker: str, lock: Lock) -> None:
        """A worker is told that it holds the lock."""
        self.believers[worker] = lock
        self._minds[worker] = contextvars.copy_context()
        self.acquired += 1
        self.at_most_one_is_sure()

    def at_most_one_is_sure(self) -> None:
        """Now: one that is paused would be as sure as this if it went on."""
        sure = [
            f"{worker} ({lock.token})"
            for worker, lock in self.believers.items()
            if self._minds[worker].copy().run(lock.session.is_open)
        ]
        assert len(sure) <= 1, f"{' and '.join(sure)} are sure to hold the lock"

    def has_given(self, times: int) -> bool:
        """Whether the lock was given to workers so many times."""
        return self.acquired >= times

    async def watch(self) -> None:
        """Looks all the time, until it is cancelled."""
        while True:
            self.at_most_one_is_sure()
            await asyncio.sleep(LOOK_S)

    async def looks_after(self, worker: str, session: Session) -> None:
        """Nobody else ends a session that was heard of."""
        await session.lost.wait()
        early_s = session.open_until - lease_time(asyncio.get_running_loop())
        if early_s > 0:
            self.closed_early.append(f"session of {worker} closed {early_s:.3f} s before its time")

    def leaves(self, worker: str) -> None:
        """It gives the lock back, or cannot know any more whether it holds it."""
        self.believers.pop(worker, None)


async def locks_stay_safe(world: World) -> None:
    """Leaders and holders are broken; then all heals and everybody gets the lock again."""
    await _locks_stay_safe(world, world.pause, world.resume)


async def locks_stay_safe_on_suspended_machines(world: World) -> None:
    """As `locks_stay_safe`, but machines of holders are suspended: their monotonic clock stands."""
    await _locks_stay_safe(world, world.suspend, world.wake)


async def _locks_stay_safe(
    world: World, hold_up: Callable[[str], None], let_go: Callable[[str], None]
) -> None:
    cluster = SimCluster(world, controllers=3, brokers=0, overrides=SMALL_SNAPSHOTS)
    cluster.start_all()
    judge = Judge()
    pausing = partial(pause_holders, world, cluster, hold_up, let_go)
    stop = asyncio.Event()

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(lambda status: status["high_watermark"] > 1)
        workers = {
            name: world.start(name, partial(work, cluster, judge, stop, name))
            for name in (f"worker-{number}" for number in range(WORKERS))
        }
        judging = asyncio.ensure_future(judge.watch())
        async with client_of(cluster, runtime) as client:
            seen: list[Event] = []
            watching = asyncio.ensure_future(follow(client, seen))
            for fault in runtime.random.sample(FAULTS, len(FAULTS)):
                await asyncio.sleep(runtime.random.uniform(0.5, 2))
                status = await observer.wait_for(lambda _: True)
                leader = f"controller-{status['leader_id']}"
                breaking = asyncio.ensure_future(
                    break_and_heal(world, cluster, fault, leader, runtime.random.uniform(0.5, 3))
                )
                await asyncio.sleep(runtime.random.uniform(0, 1))
                await pausing(judge, runtime)
                await breaking
            await a_stale_token_is_tried(judge, partial(pausing, judge, runtime))
            enough = judge.acquired + LATE_ACQUISITIONS
            await until(lambda: judge.acquired >= enough, "the lock goes round after all is healed")
            stop.set()
            for worker in workers.values():
                await worker.done
            await everything_is_given_back(client)
            await judge_events(client, seen)
            watching.cancel()
        if judging.done():
            await judging
        judging.cancel()

    await world.start("operator", operator).done
    assert not judge.closed_early, judge.closed_early
    assert judge.refused, "no stale token was tried"


def client_of(cluster: SimCluster, runtime: SimRuntime) -> Client:
    """A client of all controllers, in an order of its own."""
    names = runtime.random.sample(cluster.controller_names, len(cluster.controller_names))
    return connect([f"{name}:{CONTROLLER_PORT}" for name in names], rng=runtime.random)


async def pause_holders(
    world: World,
    cluster: SimCluster,
    hold_up: Callable[[str], None],
    let_go: Callable[[str], None],
    judge: Judge,
    runtime: SimRuntime,
    *,
    until_another: bool = False,
) -> None:
    """Whoever holds the lock is held up for as long as its session lasts, or longer.

    Often while answers take long to come, so that it counts on some that are old. With
    `until_another`, so long that another worker is given the lock.
    """
    for holder in list(judge.believers):
        late = runtime.random.random() < 0.5
        if late:
            for name in cluster.controller_names:
                link = world.network.link(name, holder)
                link.latency_min_ms = Link().latency_min_ms + LATE_ANSWERS_MS
            await asyncio.sleep(runtime.random.uniform(0.5, 3) * LATE_ANSWERS_MS / 1000)
        if holder in judge.believers:
            hold_up(holder)
            more = judge.acquired + 1
            await asyncio.sleep(runtime.random.uniform(0.8, 3) * SESSION_S)
            if until_another:
                await until(partial(judge.has_given, more), "another is given the lock")
            let_go(holder)
        for name in cluster.controller_names if late else ():
            link = world.network.link(name, holder)
            link.latency_min_ms = Link().latency_min_ms


async def a_stale_token_is_tried(
    judge: Judge, pausing: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    """Now that all is healed: a holder is held up until another has the lock, and writes on."""
    async with asyncio.timeout(PATIENCE_S):
        while not judge.tried:
            await pausing(until_another=True)
            await asyncio.sleep(POLL_S)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until it holds."""
    for _ in range(int(PATIENCE_S / POLL_S)):
        if holds():
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


# --- workers --------------------------------------------------------------------------------------


async def work(
    cluster: SimCluster, judge: Judge, stop: asyncio.Event, name: str, runtime: SimRuntime
) -> None:
    """Takes the lock again and again, each time in a session of its own."""
    async with client_of(cluster, runtime) as client:
        while not stop.is_set():
            try:
                async with client.session(SESSION_S) as session:
                    looking = asyncio.ensure_future(judge.looks_after(name, session))
                    try:
                        await client.put(MEMBERS + name, b"", session=session)
                        await hold(client, session, judge, name, runtime)
                    finally:
                        looking.cancel()
            except KafkaError:
                await asyncio.sleep(runtime.random.uniform(0, 0.5))


async def hold(
    client: Client, session: Session, judge: Judge, name: str, runtime: SimRuntime
) -> None:
    """Holds the lock for a while and writes under it, at last whether it holds it or not."""
    async with client.lock(LOCK, session=session) as lock:
        judge.enters(name, lock)
        given = judge.acquired
        try:
            token = b"%d" % lock.token
            for _ in range(2):
                await client.put(GUARDED, token, guard=lock)
                await asyncio.sleep(runtime.random.uniform(0, HOLD_S))
        finally:
            judge.leaves(name)
            await write_late(client, lock, judge, given)


async def write_late(client: Client, lock: Lock, judge: Judge, given: int) -> None:
    """As a program does that does not look whether its lock is lost.

    `given`: how often the lock had been given when this one was; if it was since, this is stale.
    """
    is_stale = judge.has_given(given + 1)
    believed = client.lock(lock.name)
    believed.token = lock.token
    try:
        await client.put(GUARDED, b"%d" % lock.token, guard=believed)
        judge.tried += is_stale
    except OutcomeUnknownError:
        pass
    except KafkaError as error:
        refused = error.code is ErrorCode.FENCED_MEMBER_EPOCH
        judge.refused += refused
        judge.tried += refused


# --- the end --------------------------------------------------------------------------------------


async def everything_is_given_back(client: Client) -> None:
    """When every session is over, no lock is held and no ephemeral key is there."""
    async with asyncio.timeout(PATIENCE_S):
        async for holder in client.holders(LOCK):
            if holder is None:
                break
    await asyncio.sleep(3 * SESSION_S)
    left = [entry.key async for entry in client.list(MEMBERS)]
    assert left == [], f"of sessions that are over {left} is left"


async def follow(client: Client, seen: list[Event]) -> None:
    """Collects the events of a watch that lasts through everything."""
    async for event in client.watch(prefix="", start=0):
        seen += [event]


async def judge_events(client: Client, seen: list[Event]) -> None:
    """Who watched all the time has seen what the log says; tokens never go back in it."""
    end = await client.put("end", b"")
    log: list[Event] = []
    async for event in client.watch(prefix="", start=0):
        log.append(event)
        if event.version == end:
            break
    await until(lambda: bool(seen) and seen[-1].version >= end, "the watch comes to the end")
    assert seen == log, f"a watch missed something: {len(seen)} events instead of {len(log)}"
    tokens = [int(event.value) for event in log if event.key == GUARDED and event.value]
    for earlier, later in pairwise(tokens):
        assert earlier <= later, f"the stale token {later} was accepted after {earlier}"
