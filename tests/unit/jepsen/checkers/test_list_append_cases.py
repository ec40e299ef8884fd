"""What Elle makes of histories of lists is what we make of them: cases of its tests and of papers.

`cases/list_append.json` has a history a case (process, type, micro-operations), where it is from,
and Elle's verdict for each model. What is invalid has the names of the anomalies that Elle tells.
Where Elle takes what a set gives first, a verdict that rests on it is `unknown`. Where ours differs
from Elle 0.2.8, the source says how.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.transactions.consistency import CONSISTENCY, KAFKA, forbidden, implied, orders
from jepsen.checkers.transactions.list_append import check_list_append
from jepsen.cli.main import run
from jepsen.history import Op, OpType
from jepsen.history.formats import read_text, to_json, write_edn
from tests.kit.spark.equality import write_table
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from jepsen.checkers.verdict import Valid

pytestmark = pytest.mark.req("J4")
CASES = json.loads((Path(__file__).parent / "cases/list_append.json").read_text())
MODELS = sorted({model for case in CASES for model in (*case["valid"], *case["invalid"])})


def lines_of(case: dict[str, Any]) -> list[Op]:
    return history(*((process, kind, "txn", micros) for process, kind, micros in case["lines"]))


def wanted(case: dict[str, Any], model: str) -> Valid:
    if model in case["unknown"]:
        return "unknown"
    return model in case["valid"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_history_has_the_verdict_of_elle(case: dict[str, Any]) -> None:
    lines = lines_of(case)
    text = {"edn": write_edn(lines), "json": "".join(f"{to_json(op)}\n" for op in lines)}
    for form, model in product(text, MODELS):
        verdict = check_list_append(read_text(text[form]), model)
        assert verdict.valid == wanted(case, model), (form, model, verdict)
        found = {one.name for one in verdict.anomalies}
        assert found.issuperset(case["invalid"].get(model, ())), (form, model, found)


def test_each_anomaly_has_a_history() -> None:
    """Of those that a history of lists can show."""
    told = {name for case in CASES for names in case["invalid"].values() for name in names}
    kinds = ("G0", "G1c", "G-single-item", "G2-item")
    cycles = {f"{kind}{order}" for kind in kinds for order in ("", "-process", "-realtime")}
    cycles |= {f"G-nonadjacent-item{order}" for order in ("", "-process", "-realtime")}
    others = {"G1a", "G1b", "internal", "future-read", "incompatible-order", "dirty-update"}
    assert told == cycles | others | {"duplicate-elements", "garbage-read", "lost-update"}


def test_verdicts_on_spark_are_those_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs raftctl[spark]")
    from jepsen.spark.check import Question, check
    from tests.kit.spark.sessions import quick_session

    histories = {case["id"]: lines_of(case) for case in CASES}
    table = tmp_path / "cases.parquet"
    write_table(histories, table)
    with quick_session("local[2]") as spark:
        for model in ("read-committed", "serializable", "strong-session-snapshot-isolation", KAFKA):
            folder = tmp_path / model
            question = Question("list-append", consistency=model)
            found = check(spark, [str(table)], "auto", question, folder, folder / "scratch")
            for case in CASES:
                mine = found[f"{table}:{case['id']}"]
                one = check_list_append(histories[case["id"]], model)
                assert mine.valid == one.valid, (model, case["id"])
                assert mine.why_unknown == one.why_unknown
                names = sorted(anomaly.name for anomaly in one.anomalies)
                assert sorted(anomaly.name for anomaly in mine.anomalies) == names, case["id"]


# --- the models -----------------------------------------------------------------------------------


def test_a_stricter_model_forbids_what_a_weaker_one_does() -> None:
    ladders = [
        ("read-uncommitted", "read-committed", "repeatable-read", "serializable"),
        ("read-committed", "read-atomic", "snapshot-isolation", "serializable"),
        ("serializable", "strong-session-serializable", "strict-serializable"),
        ("snapshot-isolation", "strong-session-snapshot-isolation", "strong-snapshot-isolation"),
    ]
    for ladder in ladders:
        for weaker, stricter in pairwise(ladder):
            assert forbidden(weaker) < forbidden(stricter)
    assert orders("serializable") == ()
    assert orders("strong-session-serializable") == ("process",)
    assert orders("strict-serializable") == ("realtime",)


def test_what_a_model_forbids_it_forbids_in_each_case_of_it() -> None:
    for model in CONSISTENCY:
        if model == KAFKA:
            continue
        for name in forbidden("strict-serializable"):
            assert (name in forbidden(model)) == bool(implied(name) & forbidden(model))


# --- completions alone ----------------------------------------------------------------------------

README = """[{:process 0, :type :ok, :value [[:append :x 1] [:r :y [1]]]}
 {:process 1, :type :ok, :value [[:append :x 2] [:append :y 1]]}
 {:process 2, :type :ok, :value [[:r :x [1 2]]]}]"""


def test_completions_alone_are_a_history(tmp_path: Path) -> None:
    """Of those that Elle's README has; as JSON lines and without processes, too."""
    for text in (README, README.replace(":process ", ":ignored ")):
        (tmp_path / "h.edn").write_text(text)
        assert check_list_append(read_text(text), "serializable").valid is False
    lines = [
        {"type": "ok", "value": [["append", "x", 1], ["r", "y", None]]},
        {"type": "ok", "value": [["append", "y", 1], ["r", "x", None]]},
    ]
    (tmp_path / "h.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--checker", "list-append", "--consistency", "serializable"]
    assert run(["check", str(tmp_path / "h.edn"), *options]) == 1
    assert run(["check", str(tmp_path / "h.jsonl"), *options]) == 1
    assert run(["check", str(tmp_path / "h.jsonl"), *options[:3], "read-committed"]) == 0


def test_other_operations_are_not_taken_for_lists() -> None:
    lines = history((0, "invoke", "txn", [["w", "x", 1]]), (0, "ok", "txn", [["w", "x", 1]]))
    verdict = check_list_append(lines)
    assert verdict.valid == "unknown"
    assert "here is w" in verdict.why_unknown


# --- every order of versions ----------------------------------------------------------------------


def tiny(rng: random.Random) -> list[Op]:
    """Two to four transactions at once on two keys, whose reads are any beginning of some order."""
    count = rng.randint(2, 4)
    txns: list[list[list[Any]]] = [[] for _ in range(count)]
    appended: dict[str, list[int]] = {"x": [], "y": []}
    for key, mine in appended.items():
        for at in rng.sample(range(count), rng.randint(0, min(3, count))):
            mine.append(len(mine) + 1)
            txns[at].append(["append", key, len(mine)])
        rng.shuffle(mine)
    for txn in txns:
        for key, mine in appended.items():
            if rng.random() < 0.5 and not any(f == "append" and its == key for f, its, _ in txn):
                txn.insert(0, ["r", key, mine[: rng.randint(0, len(mine))]])
    kinds = ["info" if rng.random() < 0.15 else "ok" for _ in txns]
    asked = [
        (at, "invoke", "txn", [[f, k, v if f == "append" else None] for f, k, v in txn])
        for at, txn in enumerate(txns)
    ]
    ended = [
        (at, kind, "txn", txn if kind == "ok" else asked[at][3])
        for at, (kind, txn) in enumerate(zip(kinds, txns, strict=True))
    ]
    return history(*asked, *ended)


def timed(lines: list[Op], rng: random.Random) -> list[Op]:
    """The same transactions, of two processes that do one after the other, at other times."""
    by_op = {op.process: op for op in lines if op.type is not OpType.INVOKE}
    asked = {op.process: op for op in lines if op.type is OpType.INVOKE}
    waiting = [list(by_op)[at::2] for at in range(2)]
    told: list[tuple[Any, ...]] = []
    under_way: list[int | str | None] = [None, None]
    names = [0, 1]
    while any(waiting) or any(one is not None for one in under_way):
        process = rng.choice([at for at in range(2) if waiting[at] or under_way[at] is not None])
        at = under_way[process]
        if at is None:
            under_way[process] = at = waiting[process].pop(0)
            told.append((names[process], "invoke", "txn", asked[at].value))
            continue
        ended = by_op[at]
        told.append((names[process], ended.type.value, "txn", ended.value))
        under_way[process] = None
        if ended.type is OpType.INFO:
            # Who does not know what became of an operation goes on as another process.
            names[process] += 2
    return history(*told)


def serial_by_force(lines: list[Op], before: Collection[tuple[Op, Op]] = ()) -> bool:
    """Whether the transactions, some of unknown outcome left out, have an order that shows what
    they read, and has the first of each pair `before` the second. It is the definition: nothing is
    inferred."""
    return any(
        _fits(order) and _keeps(order, before)
        for some in _taken(lines)
        for order in permutations(some)
    )


def snapshots_by_force(lines: list[Op], before: Collection[tuple[Op, Op]] = ()) -> bool:
    """Whether there is an order of commits in which each transaction reads what was committed at a
    moment before its own commit, since when nobody has committed what it appends to (Adya, PL-SI).
    What is `before` a transaction has committed at that moment."""
    return any(
        all(_has_snapshot(order, at, before) for at in range(len(order)))
        for some in _taken(lines)
        for order in permutations(some)
    )


def _taken(lines: list[Op]) -> Iterator[list[Op]]:
    """The transactions that have taken effect, for each thing that may have become of others."""
    ended = [op for op in lines if op.type is not OpType.INVOKE]
    sure = [op for op in ended if op.type is OpType.OK]
    unsure = [op for op in ended if op.type is OpType.INFO]
    for taken in product((False, True), repeat=len(unsure)):
        yield [*sure, *(op for op, took in zip(unsure, taken, strict=True) if took)]


def _keeps(order: tuple[Op, ...], before: Collection[tuple[Op, Op]]) -> bool:
    place = {op.index: at for at, op in enumerate(order)}
    return all(
        place[one.index] < place[other.index]
        for one, other in before
        if one.index in place and other.index in place
    )


def _has_snapshot(order: tuple[Op, ...], at: int, before: Collection[tuple[Op, Op]]) -> bool:
    mine = order[at]
    keys = _appended_to(mine)
    must = {one.index for one, other in before if other is mine}
    for start in range(at + 1):
        if not must.isdisjoint(op.index for op in order[start:]):
            continue
        if any(keys & _appended_to(op) for op in order[start:at]):
            continue
        if _fits((*order[:start], mine), of=mine):
            return True
    return False


def _appended_to(op: Op) -> set[str]:
    return {key for f, key, _ in op.value if f == "append"}


def in_time(lines: list[Op]) -> list[tuple[Op, Op]]:
    """The pairs of which the first is known to have succeeded before the second was asked for."""
    return [(one, other) for one, other, _ in _pairs(lines)]


def in_sessions(lines: list[Op]) -> list[tuple[Op, Op]]:
    """Those of one process."""
    return [(one, other) for one, other, same in _pairs(lines) if same]


def _pairs(lines: list[Op]) -> Iterator[tuple[Op, Op, bool]]:
    begun: dict[int | str, int] = {}
    ended: list[tuple[int, Op]] = []
    for op in lines:
        if op.type is OpType.INVOKE:
            begun[op.process] = op.index
            continue
        ended.append((begun[op.process], op))
    for _, one in ended:
        for start, other in ended:
            if one.type is OpType.OK and one.index < start:
                yield one, other, one.process == other.process


def _fits(order: tuple[Op, ...], of: Op | None = None) -> bool:
    """Whether each, or only this one, reads what those before it have appended."""
    lists: dict[str, list[int]] = {"x": [], "y": []}
    for op in order:
        for f, key, value in op.value:
            if f == "append":
                lists[key].append(value)
            elif of in (None, op) and op.type is OpType.OK and (value or []) != lists[key]:
                return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_what_has_no_serial_order_is_not_valid(seed: int) -> None:
    """Nor is what has one invalid: nothing is inferred that need not be."""
    rng = random.Random(seed)
    wrong = 0
    for _ in range(250):
        lines = tiny(rng)
        verdict = check_list_append(lines, "serializable")
        serial = serial_by_force(lines)
        wrong += not serial
        assert (verdict.valid is not False) == serial, lines
    assert wrong > 5


BY_FORCE: dict[str, Callable[[list[Op]], bool]] = {
    "strong-session-serializable": lambda lines: serial_by_force(lines, in_sessions(lines)),
    "strict-serializable": lambda lines: serial_by_force(lines, in_time(lines)),
    "snapshot-isolation": snapshots_by_force,
    "strong-session-snapshot-isolation": lambda lines: snapshots_by_force(
        lines, in_sessions(lines)
    ),
    "strong-snapshot-isolation": lambda lines: snapshots_by_force(lines, in_time(lines)),
}


@pytest.mark.parametrize("model", BY_FORCE)
@pytest.mark.parametrize("seed", range(4))
def test_what_a_model_cannot_show_is_not_valid(model: str, seed: int) -> None:
    """Nor is what it can show invalid."""
    rng = random.Random(seed)
    wrong = 0
    for _ in range(250):
        lines = timed(tiny(rng), rng)
        possible = BY_FORCE[model](lines)
        wrong += not possible
        verdict = check_list_append(lines, model)
        assert (verdict.valid is not False) == possible, lines
    assert wrong > 5
