"""What a history does not prove is unknown, whatever its checkers found."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.verdict import Anomaly
from jepsen.core import Ending, cut_short, faults_struck, judge, overall
from jepsen.core.spec import RunSpec
from jepsen.generator.core import NEMESIS, SECOND_NS, Context, Processes, Todo
from jepsen.history import Op, OpType
from jepsen.nemesis.faults import in_words, kind_struck, package
from jepsen.nemesis.plan import HEAL, PACKAGES
from jepsen.runner._running import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.req("J1")
Line = tuple[int | str, str, str, Any] | tuple[int | str, str, str, Any, str]
ADDS: list[Line] = [(0, "invoke", "add", 1), (0, "ok", "add", 1)]
READS: list[Line] = [(0, "invoke", "read", None), (0, "ok", "read", [1])]
HEALS: list[Line] = [(NEMESIS, "invoke", HEAL, None), (NEMESIS, "info", HEAL, None)]


def lines(*parts: Sequence[Line]) -> list[Op]:
    """A history, a tenth of a second a line."""
    flat = [line for part in parts for line in part]
    return [
        Op(at, at * SECOND_NS // 10, process, OpType(kind), f, value, None, *error)
        for at, (process, kind, f, value, *error) in enumerate(flat)
    ]


def strike(f: str, asked: Any, done: Any, *error: str) -> list[Line]:
    ended: Any = (NEMESIS, "info", f, done, *error)
    return [(NEMESIS, "invoke", f, asked), ended]


def reasons(history: Sequence[Op], *nemesis: str) -> dict[str, str]:
    """Of a test of sets: what is unknown, and why."""
    verdicts = judge(RunSpec("set", "sim", nemesis), history)
    assert overall(verdicts) is not False
    return {name: one.why_unknown for name, one in verdicts.items() if one.valid == "unknown"}


@pytest.mark.parametrize(
    ("tries", "why"),
    [
        ([], "give a longer --time-limit or a shorter --interval"),
        (strike("kill", "leader", []), "of 1 attempts none found a node it could strike"),
        (
            strike("kill", "one", "one", "RuntimeError('kill b-1: permission denied')"),
            "1 of 1 attempts failed, last: RuntimeError('kill b-1: permission denied')",
        ),
        (strike("kill", "one", [], "b-1 does not run"), "last: b-1 does not run"),
    ],
)
def test_a_fault_that_never_struck_makes_a_run_unknown(tries: list[Line], why: str) -> None:
    pause = strike("pause", "one", ["broker-1"])
    history = lines(ADDS, pause, tries, HEALS, READS)
    assert faults_struck(("kill", "pause"), history) == {"kill": 0, "pause": 1}
    found = reasons(history, "kill", "pause")
    assert list(found) == ["faults"]
    assert found["faults"].startswith("no kill struck: ")
    assert why in found["faults"]
    assert reasons(lines(ADDS, pause, strike("kill", "one", ["b-1"]), HEALS, READS), "kill") == {}


@pytest.mark.parametrize("name", PACKAGES)
def test_each_kind_is_counted_only_where_it_hit_something(name: str) -> None:
    begin = PACKAGES[name].begin
    hit: Any = {
        "partition": ["isolate", [["a", "b"]]],
        "slow": [[10, 0, 0], [["a", "b"]]],
    }.get(begin, ["a", 1])
    missed: Any = {"partition": ["isolate", []], "slow": [[10, 0, 0], []]}.get(begin, [])
    assert [kind_struck(op) for op in lines(strike(begin, "one", hit))] == ["", name]
    for nothing in (missed, None, "one"):
        assert [kind_struck(op) for op in lines(strike(begin, "one", nothing))] == ["", ""]


def test_a_run_in_which_nothing_succeeded_is_unknown_whatever_the_least_rate() -> None:
    failing: list[Line] = [(0, "invoke", "add", 1), (0, "fail", "add", 1, "no client: refused")]
    for history in ([], lines(failing)):
        verdicts = judge(RunSpec("set", "sim", rate_min=0), history)
        assert overall(verdicts) == "unknown"
        assert "no operation succeeded" in verdicts["rate"].why_unknown


def test_a_function_that_nobody_answered_is_named_and_one_that_was_refused_is_not() -> None:
    cut: list[Line] = [
        (1, "invoke", "cas", [1, 2]),
        (1, "fail", "cas", [1, 2], "no client: refused"),
    ]
    refused: list[Line] = [(1, "invoke", "cas", [1, 2]), (1, "fail", "cas", [1, 2])]
    assert reasons(lines(ADDS, cut, HEALS, READS))["clients"] == (
        "no cas was ever answered, last: no client: refused"
    )
    assert "clients" not in reasons(lines(ADDS, refused, HEALS, READS))


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ([], "nothing was read when all was healed"),
        (
            [(2, "invoke", "read", None), (2, "info", "read", None, "late")],
            "no last read succeeded: late",
        ),
        ([(2, "invoke", "read", None)], "no last read succeeded: it has not ended"),
    ],
)
def test_a_last_read_that_failed_makes_a_run_unknown(ending: list[Line], why: str) -> None:
    assert reasons(lines(ADDS, READS, HEALS, ending)) == {"ending": why}
    broken: list[Line] = [HEALS[0], (NEMESIS, "info", HEAL, None, "start b-1: no such unit")]
    assert reasons(lines(ADDS, READS, broken, ending)) == {
        "ending": f"{why}; healing failed: start b-1: no such unit"
    }
    assert reasons(lines(ADDS, READS, broken, READS)) == {}


def test_a_run_that_was_cut_short_says_when_and_what_had_struck() -> None:
    spec = RunSpec("set", "sim", ("kill",), time_limit_s=60)
    history = lines(ADDS, strike("kill", "one", ["broker-1"]), HEALS, READS)
    told = cut_short(spec, history, Ending(interrupted_s=4.2))["interrupted"]
    assert (told.valid, told.why_unknown) == (
        "unknown",
        "interrupted after 4 of 60 s, 1 fault struck",
    )
    assert "0 faults struck" in cut_short(spec, [], Ending((), 4.0))["interrupted"].why_unknown
    assert "never came to an end" in cut_short(spec, history, None)["interrupted"].why_unknown
    assert cut_short(spec, history, Ending((Anomaly("cluster-failed"),))) == {}
    broken = Anomaly("one_leader_per_epoch", {"what": "101 and 102 lead 7"})
    assert Ending.from_json(Ending((broken,), 1.5).to_json()) == Ending((broken,), 1.5)


# --- the nemesis strikes early --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("time_limit_s", [0.5, 3.0, 30.0])
def test_each_kind_is_tried_in_time_however_short_the_test(seed: int, time_limit_s: float) -> None:
    names = ("kill", "pause", "partition", "clock")
    rng = random.Random(seed)
    generator = package(names, 4.0, time_limit_s=time_limit_s)
    tried: set[str] = set()
    for tick in range(1000):
        now = int(tick * time_limit_s * SECOND_NS / 1000)
        context = Context(now, (NEMESIS,), Processes({NEMESIS: NEMESIS}), rng)
        found = generator.next_op(context)
        assert found is not None
        todo, generator = found
        if isinstance(todo, Todo):
            done = Op(0, now, NEMESIS, OpType.INFO, todo.f, ["isolate", [["a", "b"]]])
            generator = generator.updated(context, done)
            tried.add(todo.f)
    assert tried >= {PACKAGES[name].begin for name in names}


def test_a_kind_that_found_nobody_is_tried_again_before_the_next() -> None:
    generator = package(("kill", "pause"), 1.0, time_limit_s=40.0)
    rng = random.Random(1)
    done: list[str] = []
    for tick in range(400):
        now = tick * SECOND_NS // 10
        context = Context(now, (NEMESIS,), Processes({NEMESIS: NEMESIS}), rng)
        found = generator.next_op(context)
        assert found is not None
        todo, generator = found
        if isinstance(todo, Todo):
            done.append(todo.f)
            hit = ["a"] if done.count("kill") > 1 else []
            generator = generator.updated(context, Op(0, now, NEMESIS, OpType.INFO, todo.f, hit))
    assert done[:4] == ["kill", "kill", "start", "pause"]


# --- how it is told -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "value", "error", "words"),
    [
        ("kill", ["broker-1", "broker-2"], None, "kill: broker-1, broker-2"),
        ("kill", [], None, "kill: nobody"),
        ("kill", "one", "no such unit", "kill failed: no such unit"),
        ("start", ["broker-1"], None, "start: broker-1"),
        ("heal", None, None, "heal"),
        (HEAL, None, None, "all healed"),
        (
            "partition",
            ["isolate-coordinator", [["broker-3", "a"], ["a", "broker-3"]]],
            None,
            "partition: broker-3 cut off (coordinator)",
        ),
        ("partition", ["isolate", [["b", "a"], ["b", "c"]]], None, "partition: b cut off"),
        (
            "partition",
            ["halves", [["a", "c"], ["b", "c"], ["c", "a"], ["c", "b"]]],
            None,
            "partition: a, b from c",
        ),
        ("partition", ["ring", [["a", "c"], ["c", "a"]]], None, "partition: ring of a, c"),
        ("partition", ["one_way", [["a", "c"]]], None, "partition: a sends to nobody"),
        ("slow", [[20, 0, 0], [["a", "c"]]], None, "slow: links of a delay by 20 ms"),
        ("skew", [["a", -3000], ["b", 4000]], None, "skew: a -3 s, b +4 s"),
        ("break-disk", ["a", "bit_flip"], None, "break-disk: a bit_flip"),
        ("reassign", [0, [2, 3]], None, "reassign: partition 0 to 2, 3"),
        ("lower-feature", ["metadata.version", 3], None, "lower-feature: metadata.version to 3"),
    ],
)
def test_faults_are_told_in_plain_words(f: str, value: Any, error: str | None, words: str) -> None:
    assert in_words(Op(0, 0, NEMESIS, OpType.INFO, f, value, None, error)) == words


def test_progress_counts_faults_and_is_silent_about_none() -> None:
    told: list[str] = []
    progress = Progress(told.append)
    for op in lines(ADDS, HEALS):
        progress.note(op)
    assert progress.line(5 * SECOND_NS) == "   5.0 s  1 operations: 1 ok, 0 fail, 0 info"
    links = [["b", "a"], ["a", "b"]]
    for op in lines(strike("kill", "one", ["a"]), strike("partition", "one", ["isolate", links])):
        progress.note(op)
    line = progress.line(5 * SECOND_NS)
    assert line.endswith("; faults: kill 1, partition 1; last: partition: b cut off")
    assert len(line) < 150
