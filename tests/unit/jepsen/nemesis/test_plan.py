"""Plans of faults: their form, the operations they become, and what is read from a history."""

from __future__ import annotations

import random
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli._options import plan_of, rerun_command
from jepsen.cli.main import run
from jepsen.core.spec import RunSpec
from jepsen.environments import Quality
from jepsen.errors import InputError
from jepsen.generator.core import NEMESIS, Context, Processes, Todo
from jepsen.history import Op, OpType
from jepsen.nemesis._nemesis import Nemesis
from jepsen.nemesis.plan import (
    FAULTS,
    Fault,
    links_of,
    packages_of,
    performed,
    plan_from_json,
    planned,
    smallest,
)
from jepsen.runner import shrink
from jepsen.store import RunFolder
from tests.unit.jepsen.nemesis.test_nemesis import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jepsen.checkers.verdict import Valid

pytestmark = pytest.mark.req("J2")
MEMBERS = [*Cluster.controllers, *Cluster.brokers]
KILL = Fault("kill", 1_000, 2_000, ("broker-1",))
ISOLATE = Fault("isolate", 1_500, 500, ("broker-2",))
DELAY = Fault("delay", 0, 3_000, ("broker-1", "broker-3"), 80.0)


def operations(*plan: Fault) -> list[Todo]:
    """All that the generator of a plan gives to a nemesis that is always free."""
    generator, found = planned(plan, MEMBERS), []
    processes = Processes({0: 0, NEMESIS: NEMESIS})
    while step := generator.next_op(Context(0, (0, NEMESIS), processes, random.Random(1))):
        todo, generator = step
        assert isinstance(todo, Todo)
        assert todo.thread == NEMESIS
        found.append(todo)
    return found


def noted(*lines: tuple[int, str, Any]) -> list[Op]:
    """A history in which each operation of the nemesis takes no time: (ms, f, value)."""
    return [
        Op(2 * at + half, ms * 1_000_000, NEMESIS, kind, f, value)
        for at, (ms, f, value) in enumerate(lines)
        for half, kind in enumerate((OpType.INVOKE, OpType.INFO))
    ]


@pytest.mark.parametrize("kind", FAULTS)
def test_every_kind_is_read_back_as_it_was_written(kind: str) -> None:
    amount = 3.0 if FAULTS[kind].unit else 0.0
    fault = Fault(kind, 10, 20, ("broker-1", "broker-2"), amount, (("broker-1", "broker-2"),))
    document = fault.to_json()
    assert (document["fault"], document["at_ms"], document["for_ms"]) == (kind, 10, 20)
    assert plan_from_json([document]) == (fault,)


@pytest.mark.parametrize(
    "document",
    [
        {"fault": "kill"},
        [{"fault": "kill", "at_ms": 1}],
        [{"fault": "meteor", "at_ms": 1, "target": []}],
        [{"fault": "kill", "at_ms": "soon", "target": ["a"]}],
        ["kill"],
        [{"fault": "pair", "at_ms": 1, "target": [], "parameters": {"links": ["a"]}}],
    ],
)
def test_what_is_no_plan_is_refused(document: Any) -> None:
    with pytest.raises(InputError, match=r"no plan|no fault of a plan"):
        plan_from_json(document)


def test_only_the_simulator_has_some_kinds() -> None:
    assert packages_of((ISOLATE, KILL, DELAY)) == ("partition", "kill", "slow")
    stall = Fault("stall", 0, 1, ("broker-1",), 5.0)
    with pytest.raises(InputError, match="stall: only machines of the simulator"):
        packages_of((stall,))
    assert packages_of((stall, KILL), simulated=True) == ("kill",)
    with pytest.raises(InputError, match="stall"):
        RunSpec("queue", "local").with_plan((stall,))
    assert RunSpec("queue", "sim").with_plan((stall, KILL)).nemesis == ("kill",)


def test_faults_begin_and_end_in_the_order_of_their_times() -> None:
    assert [(todo.f, todo.time // 1_000_000) for todo in operations(KILL, ISOLATE, DELAY)] == [
        ("slow", 0),
        ("kill", 1_000),
        ("partition", 1_500),
        ("heal", 2_000),
        ("start", 3_000),
        ("restore", 3_000),
    ]


def test_a_role_is_left_to_the_nemesis() -> None:
    begin, end = operations(Fault("kill", 0, 10, ("leader",)))
    assert (begin.value, end.value) == ("leader", None)
    (cut,) = operations(Fault("isolate", 0, 0, ("partition-leader",)))
    assert (cut.f, cut.value) == ("partition", "isolate-partition-leader")


def test_links_follow_from_the_kind_unless_they_are_named() -> None:
    few = ["a", "b", "c"]
    assert links_of(Fault("isolate", 0, 1, ("a",)), few) == [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("c", "a"),
    ]
    assert links_of(Fault("one_way", 0, 1, ("a", "c")), few) == [("a", "c")]
    assert links_of(Fault("pair", 0, 1, ("a", "c")), few) == [("a", "c"), ("c", "a")]
    named = Fault("isolate", 0, 1, ("a",), 0.0, (("a", "b"),))
    assert links_of(named, few) == [("a", "b")]
    assert links_of(KILL, few) == []


async def perform(cluster: Cluster, todos: Sequence[Todo]) -> list[Op]:
    """The history of the nemesis that performs these operations."""
    nemesis, history = Nemesis(cluster, random.Random(1)), list[Op]()
    for todo in todos:
        asked = Op(len(history), todo.time, NEMESIS, OpType.INVOKE, todo.f, todo.value)
        done = await nemesis.invoke(asked)
        history.append(asked)
        history.append(Op(len(history), todo.time, NEMESIS, done.type, todo.f, done.value))
    return history


async def test_each_fault_of_a_plan_ends_alone() -> None:
    cluster = Cluster()
    other = Fault("pair", 1_600, 2_000, ("broker-1", "broker-3"))
    slow = Fault("bandwidth", 100, 100, ("broker-2", "broker-1"), 9_000.0)
    todos = operations(DELAY, KILL, replace_target(KILL, "broker-3", 5_000), ISOLATE, other, slow)
    until = {todo.f: at for at, todo in enumerate(todos)}
    await perform(cluster, todos[: until["restore"]])
    assert cluster.slow == dict.fromkeys(links_of(DELAY, MEMBERS), Quality(80.0, 0, None))
    cluster = Cluster()
    healed = next(at for at, todo in enumerate(todos) if todo.f == "heal")
    await perform(cluster, todos[: healed + 1])
    assert cluster.links == set(links_of(other, MEMBERS))
    cluster = Cluster()
    started = next(at for at, todo in enumerate(todos) if todo.f == "start")
    await perform(cluster, todos[: started + 1])
    assert cluster.down == {"broker-3"}
    cluster = Cluster()
    await perform(cluster, todos)
    assert (cluster.down, cluster.links, cluster.slow) == (set(), set(), {})


def replace_target(fault: Fault, node: str, for_ms: int) -> Fault:
    return Fault(fault.kind, fault.at_ms, for_ms, (node,))


async def test_a_plan_that_was_performed_is_read_from_the_history() -> None:
    skew = Fault("clock_skew", 4_000, 1_000, ("broker-1",), -500.0)
    stop = Fault("stop", 6_000, 700, ("controller-1",))
    plan = (DELAY, KILL, ISOLATE, skew, stop)
    history = await perform(Cluster(), operations(*plan))
    found = performed(history)
    assert [(one.kind, one.at_ms, one.for_ms, one.amount) for one in found] == [
        (one.kind, one.at_ms, one.for_ms, one.amount) for one in plan
    ]
    assert [set(one.links) for one in found] == [set(links_of(one, MEMBERS)) for one in plan]
    assert plan_from_json([one.to_json() for one in found]) == found


def test_random_faults_become_a_plan_of_what_struck() -> None:
    links = [["broker-1", "broker-2"], ["broker-2", "broker-1"]]
    found = performed(
        noted(
            (10, "kill", ["broker-1"]),
            (20, "pause", []),
            (30, "partition", ["isolate-leader", links]),
            (40, "restart", ["broker-2"]),
            (50, "partition", ["one_way", links[:1]]),
            (60, "slow", [[0, 0.25, None], links]),
            (70, "break-disk", ["broker-3", "truncate"]),
            (80, "reassign", [2, [3, 1]]),
            (90, "lower-feature", ["kraft.version", 0]),
            (95, "rolling", ["broker-1", "broker-2"]),
            (100, "heal-all", None),
        )
    )
    assert [str(one) for one in found] == [
        "kill broker-1 at 10 for 90 ms",
        "isolate broker-1 at 30 for 20 ms",
        "stop broker-2 at 40 for 0 ms",
        "one_way broker-1 broker-2 at 50 for 50 ms",
        "loss broker-1 broker-2 by 0.25 at 60 for 40 ms",
        "truncate broker-3 at 70 for 30 ms",
        "reassign 3 1 by 2 at 80 for 0 ms",
        "feature kraft.version at 90 for 10 ms",
        "rolling broker-1 broker-2 at 95 for 0 ms",
    ]


@pytest.mark.parametrize("guilty", [(), (3,), (0, 6), (1, 2, 5)])
def test_the_smallest_part_of_a_plan_that_fails_is_found(guilty: tuple[int, ...]) -> None:
    runs = []

    def fails(some: tuple[int, ...], operations: int) -> bool:
        runs.append((some, operations))
        return set(guilty) <= set(some) and operations in range(10, 65)

    assert smallest(8, fails, 64) == (guilty, 16)
    assert len(runs) == len(set(runs)) <= 24


# --- plans of tests -------------------------------------------------------------------------------


def test_the_specification_of_a_run_has_its_plan(tmp_path: Path) -> None:
    spec = RunSpec("queue", "sim", topic="jepsen-0").with_plan((KILL, ISOLATE))
    assert spec.nemesis == ("kill", "partition")
    assert RunFolder.create(tmp_path, spec, "").spec == spec


def test_the_command_of_a_run_has_its_plan(tmp_path: Path) -> None:
    spec = RunSpec("queue", "sim").with_plan((KILL, ISOLATE))
    words = shlex.split(rerun_command(spec))
    text = words[words.index("--plan") + 1]
    assert plan_of(text) == spec.plan
    (tmp_path / "plan.json").write_text(text)
    assert plan_of(str(tmp_path / "plan.json")) == plan_of(text)
    assert "--nemesis" not in words


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--plan", "[", "--env", "sim"], "not valid JSON"),
        (["--plan", "nowhere.json", "--env", "sim"], "nowhere.json"),
        (["--plan", "[]", "--nemesis", "kill", "--env", "sim"], "leave --nemesis out"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["test", "queue", *words]) == 254
    assert why in capsys.readouterr().err


def test_a_run_is_made_small_by_leaving_faults_out(tmp_path: Path) -> None:
    spec = RunSpec("queue", "sim").with_plan((DELAY, KILL, ISOLATE))
    tried: list[int] = []

    def fails_with_the_kill(some: RunSpec) -> Valid:
        plan = some.plan or ()
        tried.append(len(plan))
        return KILL not in plan

    assert shrink(RunFolder.create(tmp_path, spec, ""), fails_with_the_kill) == (KILL,)
    assert tried[0] == 3


def test_a_run_that_does_not_fail_again_cannot_be_made_small(tmp_path: Path) -> None:
    spec = RunSpec("queue", "sim").with_plan((KILL,))
    assert shrink(RunFolder.create(tmp_path, spec, ""), lambda _: "unknown") is None
    with pytest.raises(InputError, match="no fault struck"):
        shrink(RunFolder.create(tmp_path, RunSpec("queue", "sim"), ""), lambda _: False)
