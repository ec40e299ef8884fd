"""Generators, asked without a clock: threads finish at once, later, or never."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.generator import ConcurrentKeys, Rounds
from jepsen.generator.combinators import (
    AnyOf,
    Cycle,
    FlipFlop,
    Limit,
    Mapped,
    Mix,
    ProcessLimit,
    Sleep,
    Stagger,
    Synchronize,
    Then,
    TimeLimit,
    UntilOk,
    clients,
    each_process,
    each_thread,
    nemesis,
    once,
    phases,
    reserve,
)
from jepsen.generator.core import (
    NEMESIS,
    SECOND_NS,
    Context,
    Endless,
    Numbered,
    Processes,
    Thread,
    Todo,
)
from jepsen.history import Op, OpType
from jepsen.workloads import WorkloadOptions
from jepsen.workloads.kv import register
from jepsen.workloads.queue import queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.generator.core import Generator

pytestmark = pytest.mark.req("J1")
TICK_NS = SECOND_NS // 100


@dataclass(frozen=True, slots=True)
class Invoked:
    """An operation and when it began."""

    time_s: float
    thread: Thread
    process: int | str
    f: str
    value: Any
    key: Any = None


def run(
    generator: Generator,
    *,
    threads: int = 3,
    seed: int = 0,
    takes_s: float = 0.05,
    ends: Callable[[Todo], OpType] = lambda _: OpType.OK,
    ops_max: int = 10_000,
) -> list[Invoked]:
    """What the generator does when every operation takes so long and ends so."""
    rng = random.Random(seed)
    names: list[Thread] = [*range(threads), NEMESIS]
    processes: dict[Thread, int | str] = {name: name for name in names}
    busy: dict[Thread, tuple[int, Op, Todo]] = {}
    now = 0
    found: list[Invoked] = []
    for _ in range(100_000):
        for thread, (end, begun, done) in list(busy.items()):
            if end <= now:
                del busy[thread]
                kind = ends(done)
                free = tuple(name for name in names if name not in busy)
                after = Context(now, free, Processes(processes), rng)
                generator = generator.updated(after, replace(begun, type=kind))
                if kind is OpType.INFO and isinstance(thread, int):
                    processes[thread] = int(processes[thread]) + threads
        free = tuple(name for name in names if name not in busy)
        answer = generator.next_op(Context(now, free, Processes(processes), rng))
        if answer is None and not busy:
            return found
        if answer is None or not isinstance(answer[0], Todo) or answer[0].time > now:
            if answer is not None and not isinstance(answer[0], Todo):
                generator = answer[1]
            now += TICK_NS
            continue
        todo, generator = answer[0], answer[1]
        assert todo.thread is not None
        assert todo.thread in free
        process = processes[todo.thread]
        op = Op(len(found), now, process, OpType.INVOKE, todo.f, todo.value, todo.key)
        found.append(Invoked(now / SECOND_NS, todo.thread, process, todo.f, todo.value, todo.key))
        if len(found) == ops_max:
            return found
        busy[todo.thread] = (now + int(takes_s * SECOND_NS), op, todo)
        free = tuple(name for name in names if name not in busy)
        generator = generator.updated(Context(now, free, Processes(processes), rng), op)
    raise AssertionError("it never ends")


def numbers(f: str = "w") -> Generator:
    return Numbered(lambda number: Todo(f, number))


def forever(f: str) -> Generator:
    return Endless(lambda _: Todo(f))


def test_a_limit_counts_operations() -> None:
    assert [one.value for one in run(Limit(5, numbers()))] == [0, 1, 2, 3, 4]


def test_a_time_limit_begins_when_it_is_first_asked() -> None:
    found = run(Then((Sleep(1), TimeLimit(2, clients(numbers())))))
    assert found[0].time_s >= 1
    assert 2.8 < found[-1].time_s < 3.0 + 0.02


def test_operations_are_staggered() -> None:
    found = run(clients(Limit(200, Stagger(0.1, numbers()))), takes_s=0.0)
    assert 15 < found[-1].time_s < 25
    assert all(later.time_s >= one.time_s for one, later in pairwise(found))


def test_what_comes_more_often_than_timers_tell_apart_keeps_its_rate() -> None:
    found = run(clients(Limit(2000, Stagger(0.0005, numbers()))), takes_s=0.0)
    assert 0.8 < found[-1].time_s < 1.3


@pytest.mark.parametrize(("apart_s", "from_s"), [(0.1, 10.0), (0.0005, 9.9)])
def test_what_is_late_for_want_of_a_thread_puts_off_the_rest(apart_s: float, from_s: float) -> None:
    late = Context(10 * SECOND_NS, (0,), Processes({0: 0}), random.Random(1))
    found = Stagger(apart_s, numbers(), next_time=0).next_op(late)
    assert found is not None
    assert isinstance(found[1], Stagger)
    assert found[1].next_time is not None
    assert from_s <= found[1].next_time / SECOND_NS <= from_s + 2 * apart_s


def test_a_mix_ends_when_all_parts_have() -> None:
    found = run(Mix((Limit(20, numbers("a")), Limit(30, numbers("b")))))
    assert [sum(one.f == f for one in found) for f in "ab"] == [20, 30]
    assert {one.f for one in found[:15]} == {"a", "b"}


def test_parts_take_turns() -> None:
    found = run(Limit(6, FlipFlop((forever("a"), forever("b")))))
    assert [one.f for one in found] == ["a", "b"] * 3


def test_a_cycle_begins_anew() -> None:
    found = run(Limit(5, Cycle(Then((once("a"), once("b"))))))
    assert [one.f for one in found] == ["a", "b", "a", "b", "a"]


def test_phases_wait_for_all_threads() -> None:
    found = run(phases(clients(Limit(7, numbers("a"))), clients(Limit(2, numbers("b")))))
    last = max(one.time_s for one in found if one.f == "a")
    assert [one.f for one in found] == ["a"] * 7 + ["b"] * 2
    assert min(one.time_s for one in found if one.f == "b") > last + 0.04


def test_threads_are_reserved() -> None:
    found = run(clients(Limit(60, reserve(1, forever("a"), 1, forever("b"), forever("c")))))
    assert {one.f: one.thread for one in found} == {"a": 0, "b": 1, "c": 2}


def test_reserve_wants_pairs() -> None:
    with pytest.raises(ValueError, match="reserve"):
        reserve(numbers(), numbers())


def crash(todo: Todo) -> OpType:
    return OpType.INFO


def test_each_thread_and_each_process_get_copies() -> None:
    by_thread = run(clients(each_thread(Limit(2, forever("a")))))
    assert sorted(one.thread for one in by_thread) == [0, 0, 1, 1, 2, 2]
    by_process = run(clients(ProcessLimit(9, each_process(Limit(1, forever("a"))))), ends=crash)
    assert sorted(one.process for one in by_process) == list(range(9))


def test_the_nemesis_and_clients_are_apart() -> None:
    found = run(AnyOf((nemesis(Limit(3, forever("kill"))), clients(Limit(5, forever("a"))))))
    assert {one.f for one in found if one.thread == NEMESIS} == {"kill"}
    assert {one.f for one in found if one.thread != NEMESIS} == {"a"}
    assert len(found) == 8


def test_until_ok_ends_with_a_success() -> None:
    def ends(todo: Todo) -> OpType:
        return OpType.OK if todo.value >= 4 else OpType.FAIL

    found = run(UntilOk(numbers()), threads=1, ends=ends)
    clients_only = [one for one in found if one.value <= 4]
    assert len(clients_only) == 5


def test_keys_are_independent() -> None:
    keys = ConcurrentKeys(2, lambda key: Limit(4, numbers()))
    found = run(clients(Limit(40, keys)), threads=4)
    by_key: dict[int, list[Any]] = {}
    for one in found:
        by_key.setdefault(one.key, []).append(one)
    assert all([one.value for one in mine] == [0, 1, 2, 3] for mine in list(by_key.values())[:8])
    assert all(len({int(one.thread) // 2 for one in mine}) == 1 for mine in by_key.values())


def test_quick_operations_leave_no_group_of_threads_without_a_key() -> None:
    keys = ConcurrentKeys(2, lambda key: Limit(100, numbers()))
    found = run(clients(Limit(300, Stagger(0.05, keys))), threads=6, takes_s=0.0)
    groups = Counter(int(one.thread) // 2 for one in found)
    assert sorted(groups) == [0, 1, 2]
    assert min(groups.values()) > 60


@pytest.mark.req("J7")
def test_rounds_begin_when_all_is_quiet_and_end_with_what_is_unknown() -> None:
    def ends(todo: Todo) -> OpType:
        return OpType.INFO if todo.value == 9 else OpType.OK

    rounds = Rounds(Limit(4, numbers()))
    found = run(clients(Limit(40, rounds)), threads=3)
    assert [one.value for one in found] == [0, 1, 2, 3] * 10
    for before, after in pairwise(found[at : at + 4] for at in range(0, 40, 4)):
        assert after[0].time_s >= before[-1].time_s + 0.04
    values = iter(range(100))
    counted = Endless(lambda _: Todo("w", next(values)))
    assert [one.value for one in run(clients(Rounds(Limit(4, counted))), ends=ends)] == [*range(12)]


@pytest.mark.req("J7")
def test_a_register_with_barriers_is_left_when_an_outcome_is_unknown() -> None:
    options = WorkloadOptions(concurrency=2, ops_per_key=10, barrier_every=4)
    crashes = iter([OpType.INFO])
    ops = clients(Limit(30, register(options).generator))
    found = run(ops, threads=2, ends=lambda _: next(crashes, OpType.OK))
    lengths = [len(list(mine)) for _, mine in groupby(found, key=lambda one: one.key)]
    assert lengths == [4, 10, 10, 6]


def test_operations_can_be_changed() -> None:
    found = run(Mapped(lambda todo: replace(todo, f="z"), Limit(1, numbers())))
    assert [one.f for one in found] == ["z"]


def test_synchronize_waits_for_its_threads_only() -> None:
    slow = nemesis(once("kill"))
    found = run(AnyOf((slow, clients(Synchronize(Limit(1, numbers()))))))
    assert {one.f for one in found} == {"kill", "w"}


def test_the_same_seed_does_the_same() -> None:
    def made(seed: int) -> list[Invoked]:
        return run(clients(Limit(50, Stagger(0.05, Mix((numbers("a"), numbers("b")))))), seed=seed)

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_a_queue_is_polled_for_the_last_time_when_every_send_has_ended() -> None:
    # Seen with three sends under way when a fourth was acknowledged: they counted as unseen.
    takes_s = 0.5
    final = queue(WorkloadOptions(concurrency=4)).final
    found = run(clients(Stagger(0.1, final)), threads=4, takes_s=takes_s)
    sent_s = [one.time_s for one in found if one.f == "send"]
    polled_s = [one.time_s for one in found if one.f == "final-poll"]
    assert len(sent_s) > 1
    assert min(polled_s) >= max(sent_s) + takes_s
