"""The runs that whole clusters with a planted bug are put through, each in a process of its own.

`python -m jepsen.simulator run tests.mutants.node_scenarios:<mutant> --seed N` replays a mutant
with a seed; the name of a scenario instead of a mutant's runs the product as it is.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING

from jepsen.nemesis.plan import Fault
from tests.simulation.acl_scenarios import rules_hold
from tests.simulation.admin_chaos import AdminChaos
from tests.simulation.chaos_clients import create_topic
from tests.simulation.cluster_chaos import (
    chaos,
    controllers_are_cut_off_for_long,
    controllers_disks_fail,
    controllers_restart_amid_elections,
)
from tests.simulation.cluster_scenarios import snapshots_bring_back_who_was_away
from tests.simulation.consumer_scenarios import consumers_go_on
from tests.simulation.delayed_scenarios import (
    a_controller_that_leads_again_gets_it_late,
    the_same_controller_gets_it_late,
)
from tests.simulation.flood_scenarios import (
    the_active_controllers_disk_hangs,
    the_other_voters_disks_hang,
)
from tests.simulation.group_scenarios import coordinator_dies, coordinator_is_isolated
from tests.simulation.kv_scenarios import keys_stay_linearizable
from tests.simulation.lease_scenarios import a_broker_that_is_held_up_keeps_no_session
from tests.simulation.lock_scenarios import locks_stay_safe
from tests.simulation.outcome_scenarios import (
    coordinator_dies_between_prepare_and_complete,
    late_end_comes_in_the_next_transaction,
)
from tests.simulation.partition_scenarios import (
    SMALL_STEPS,
    all_brokers_lose_power,
    both_replicas_crash,
    follower_restarts_then_leader_dies,
    last_replica_standing,
    log_directory_of_a_replica_fails,
    replica_returns_empty_while_it_is_proposed,
    syncs_fail_before_a_restart_and_the_power,
    syncs_fail_before_the_power,
)
from tests.simulation.quota_scenarios import quotas_hold_all_day
from tests.simulation.rig import TIMEOUT_S, Rig
from tests.simulation.static_to_dynamic import changes
from tests.simulation.transaction_scenarios import transactions_survive_faults
from tests.simulation.voter_chaos import VoterChaos
from tests.simulation.voter_scenarios import (
    changes_compete,
    removed_voter_is_the_fastest,
    wiped_voter_counts_for_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from jepsen.simulator.world import SimRuntime, World

    Scenario = Callable[[World], Coroutine[Any, Any, object]]

TOPICS = 8
SLOWNESS = 300.0
LATENCY_MS = 500.0


async def partition_leader_is_isolated(world: World) -> None:
    """Clients still reach a partition leader that the cluster does not: it must promise nothing."""
    rig = Rig(world)
    await rig.begin()
    leader = rig.partition().leader
    rig.isolate(f"broker-{leader}")
    await rig.until(lambda: rig.partition() and rig.partition().leader != leader, "another leads")
    await asyncio.sleep(world.random.uniform(0.2, 7.0))
    await rig.end()


async def acknowledgement_is_lost(world: World) -> None:
    """A leader dies before its answer reaches the producer, which asks the next one again."""
    rig = Rig(world)
    await rig.begin()
    leader = f"broker-{rig.partition().leader}"
    world.block(leader, "writer")
    await asyncio.sleep(world.random.uniform(0.2, 0.5))
    world.kill(leader)
    written = len(rig.ledger.acknowledged)
    await rig.until(lambda: len(rig.ledger.acknowledged) > written + 5, "the writer goes on")
    world.heal()
    rig.cluster.start(leader)
    await asyncio.sleep(world.random.uniform(0.5, 1.5))
    await rig.end()


async def replicas_leave_until_none_is_left(world: World) -> None:
    """Replicas go down one after the other; those that come back first lack the last records."""
    rig = Rig(world)
    await rig.begin()
    leader = rig.partition().leader
    followers = [f"broker-{one}" for one in rig.partition().replicas if one != leader]
    for number, name in enumerate(followers):
        world.kill(name)
        await rig.until(partial(rig.has_in_sync, 2 - number), "a replica left")
        await asyncio.sleep(world.random.uniform(0.2, 0.6))
    world.kill(f"broker-{leader}")
    await rig.until(lambda: rig.partition().leader == -1, "nobody leads")
    for name in followers:
        rig.cluster.start(name)
        await asyncio.sleep(world.random.uniform(0.5, 1.5))
    await rig.end()


async def broker_comes_back_slowly(world: World) -> None:
    """A replica comes back, and what others send it, and what it writes, takes its time."""
    await _comes_back_slowly(world, lambda replicas, leader: _others(replicas, leader)[0])


async def preferred_replica_comes_back_slowly(world: World) -> None:
    """The first of the assignment comes back long before it has what was written meanwhile."""
    await _comes_back_slowly(world, lambda replicas, _: replicas[0])


async def _comes_back_slowly(world: World, pick: Callable[[tuple[int, ...], int], int]) -> None:
    rig = Rig(world)
    await rig.begin()
    name = f"broker-{pick(rig.partition().replicas, rig.partition().leader)}"
    world.kill(name)
    await rig.until(partial(rig.has_in_sync, 2), "a replica left")
    await asyncio.sleep(world.random.uniform(0.2, 0.6))
    world.node(name).disk.slowness = SLOWNESS
    links = [world.network.link(one, name) for one in rig.cluster.broker_names if one != name]
    latency_ms = links[0].latency_extra_mean_ms
    for link in links:
        link.latency_extra_mean_ms = LATENCY_MS
    rig.cluster.start(name)
    await rig.until(rig.whole, "all replicas are in sync")
    world.node(name).disk.slowness = 1.0
    for link in links:
        link.latency_extra_mean_ms = latency_ms
    await rig.end()


async def follower_catches_up_in_small_steps(world: World) -> None:
    """A follower that was away is told of a high watermark that it has yet to reach."""
    rig = Rig(world, SMALL_STEPS)
    await rig.begin()
    name = f"broker-{_others(rig.partition().replicas, rig.partition().leader)[0]}"
    world.kill(name)
    await rig.until(partial(rig.has_in_sync, 2), "a replica left")
    written = len(rig.ledger.acknowledged)
    await rig.until(lambda: len(rig.ledger.acknowledged) > written + 10, "the writer goes on")
    rig.cluster.start(name)
    await rig.end()


def _others(replicas: tuple[int, ...], leader: int) -> list[int]:
    return [one for one in replicas if one != leader]


async def controller_is_isolated(world: World) -> None:
    """Brokers still reach an active controller that its quorum does not."""
    rig = Rig(world)
    await rig.begin()
    controller = rig.active()
    name = f"controller-{controller.config.node_id}"
    for other in rig.cluster.controller_names:
        if other != name:
            world.block(name, other)
            world.block(other, name)
    topics: set[str] = set()

    async def create(runtime: SimRuntime) -> None:
        for number in range(TOPICS):
            if await create_topic(rig.cluster.bootstrap, f"created-{number}", 1):
                topics.add(f"created-{number}")

    creating = world.start("creator", create).done
    await rig.until(lambda: rig.active() not in (None, controller), "another controller is active")
    world.heal()
    async with asyncio.timeout(TIMEOUT_S):
        await creating
    await _let_lead(rig, name)
    await rig.end()
    image = rig.active().loader.image
    gone = sorted(name for name in topics if image.topics.by_name(name) is None)
    assert not gone, f"topic {gone[0]} is gone"


async def _let_lead(rig: Rig, name: str) -> None:
    """Kills active controllers until this one is active."""
    controller_id = int(name.rpartition("-")[2])
    while (active := rig.active().config.node_id) != controller_id:
        killed = f"controller-{active}"
        rig.world.kill(killed)
        await rig.until(partial(rig.is_led_after, active), "another controller is active")
        rig.cluster.start(killed)
        await asyncio.sleep(1)


async def voters_change_in_chaos(world: World) -> None:
    """Voters come, go and lose their disks while everything goes wrong."""
    await VoterChaos(world).run()


async def configured_voters_become_dynamic(world: World) -> None:
    """In an order that the seed draws, while nodes are away."""
    await changes(world)


async def administrators_change_everything(world: World) -> None:
    """Administrators change everything while controllers are far away and die, one by one."""
    controllers = ("controller-101", "controller-102", "controller-103")
    slow = [
        Fault("delay", 100, 12_000, (controller, broker), 250.0)
        for controller in controllers
        for broker in ("broker-1", "broker-2", "broker-3")
    ]
    kills = [Fault("kill", 700 + 900 * i, 300, (name,)) for i, name in enumerate(controllers * 4)]
    await AdminChaos(world, (*slow, *kills)).run()


SCENARIOS: dict[str, Scenario] = {
    one.__name__: one
    for one in (
        chaos,
        controllers_are_cut_off_for_long,
        controllers_disks_fail,
        controllers_restart_amid_elections,
        consumers_go_on,
        coordinator_dies,
        coordinator_is_isolated,
        partition_leader_is_isolated,
        acknowledgement_is_lost,
        replicas_leave_until_none_is_left,
        broker_comes_back_slowly,
        preferred_replica_comes_back_slowly,
        follower_catches_up_in_small_steps,
        controller_is_isolated,
        follower_restarts_then_leader_dies,
        both_replicas_crash,
        last_replica_standing,
        log_directory_of_a_replica_fails,
        all_brokers_lose_power,
        syncs_fail_before_the_power,
        syncs_fail_before_a_restart_and_the_power,
        removed_voter_is_the_fastest,
        wiped_voter_counts_for_nothing,
        voters_change_in_chaos,
        configured_voters_become_dynamic,
        administrators_change_everything,
        changes_compete,
        replica_returns_empty_while_it_is_proposed,
        keys_stay_linearizable,
        locks_stay_safe,
        a_broker_that_is_held_up_keeps_no_session,
        snapshots_bring_back_who_was_away,
        transactions_survive_faults,
        coordinator_dies_between_prepare_and_complete,
        late_end_comes_in_the_next_transaction,
        the_same_controller_gets_it_late,
        a_controller_that_leads_again_gets_it_late,
        the_active_controllers_disk_hangs,
        the_other_voters_disks_hang,
        rules_hold,
        quotas_hold_all_day,
    )
}

COMPLAINTS = {
    "it was on disk already": "flushed_record_stays",
    "not linearizable": "keys_are_linearizable",
    "sure to hold": "one_holds_a_lock",
    "before its time": "session_that_is_kept_stays",
    "the stale token": "stale_token_is_refused",
    "a watch missed": "watch_misses_nothing",
    "of sessions that are over": "ephemeral_key_goes_with_its_session",
    "names the unknown session": "ephemeral_key_goes_with_its_session",
    "has two owners": "partition_has_one_owner",
    "the committed offset of": "committed_offset_stays",
    "used-without-right: {": "used-without-right",
    "denied-with-right: {": "denied-with-right",
    "duplicate: {": "duplicate",
    "inconsistent-offsets: {": "inconsistent-offsets",
    ", a reader saw ": "seen_record_stays",
    "unexpected: {": "unexpected",
    "lost-write: {": "lost-write",
    "unseen: {": "unseen",
    "nonmonotonic-send: {": "nonmonotonic-send",
    "was given to": "no_producer_id_is_given_twice",
    "was aborted and": "no_aborted_record_is_read",
    "is there in part": "transaction_is_all_or_nothing",
    "is still open": "every_transaction_ends",
    "is gone": "acknowledged_topic_stays",
    "OffsetOutOfRangeError": "seen_record_stays",
    "what a member holds is given to no other": "partition_has_one_owner",
    "these follow the leader": "every_node_follows",
    "not within": "liveness",
    "not answered within": "liveness",
}
"""What the clients' judge complains of, and the property that it is about."""

_VIOLATION = re.compile(r"\bViolation(?:: |\([\"'])(\w+):")
"""Raised, or told of after what went wrong first, as when a client fails on what it reads."""
_ANOMALY = re.compile(r"^\w+: ([\w-]+: \{.*)", re.MULTILINE)
"""Found by a checker in the history that the scenario noted."""
_ASSERTION = re.compile(r"\bAssertionError: (.*)")
_INVARIANT = re.compile(r"\bInvariantViolation: (.*)")


def broken_property(output: str) -> str:
    """The property that a failed run names in its output."""
    for pattern in (_VIOLATION, _ANOMALY, _ASSERTION, _INVARIANT):
        found = pattern.search(output)
        if found is not None and pattern is _VIOLATION:
            return found[1]
        if found is not None:
            return next((n for part, n in COMPLAINTS.items() if part in found[1]), found[0])
    found_part = (name for part, name in COMPLAINTS.items() if part in output)
    return next(found_part, output.rstrip().rpartition("\n")[2])


def __getattr__(name: str) -> Scenario:
    from tests.mutants.node_catalog import NODE_MUTANTS

    mutant = next((one for one in NODE_MUTANTS if one.name == name), None)
    if mutant is None:
        raise AttributeError(name)

    async def run(world: World) -> None:
        mutant.plant()
        await SCENARIOS[mutant.scenario](world)

    return run
