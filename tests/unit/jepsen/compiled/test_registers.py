"""The compiled search of registers beside trying everything, and beside the searches in Python."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jepsen import compiled
from jepsen.checkers.linearizable import _check as linearizable
from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.linearizable.models import Register
from jepsen.compiled import codes
from jepsen.history import HistoryError, Op
from jepsen.spark.package import write_archive
from tests.unit.jepsen.compiled.registers import NIL, table_of
from tests.unit.jepsen.histories import history, linearizable_by_force, made_history, spoiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.checkers.linearizable._check import LinearizabilityResult


pytestmark = [
    pytest.mark.req("J4"),
    # Whoever comes first compiles, which takes seconds of a processor that others may use.
    pytest.mark.timeout(900),
]
np = pytest.importorskip("numpy", reason="needs raftctl[fast]")
numba = pytest.importorskip("numba", reason="needs raftctl[fast]")
registers = pytest.importorskip("jepsen.compiled.registers", reason="needs raftctl[fast]")


def _judged(
    histories: Sequence[list[Op]],
    model: Register,
    configurations_max: int = registers.CONFIGURATIONS_MAX,
) -> list[int]:
    """The verdict on each history, one key's."""
    found, _ = registers.judge_table(*table_of(histories, model), NIL, configurations_max)
    return [int(one) for one in found]


def _made(rng: random.Random, sizes: Sequence[int], domain: int) -> list[Op]:
    """A history, perhaps with results changed."""
    lines = made_history(
        rng,
        operation_count=rng.choice(sizes),
        concurrency=rng.choice((3, 4, 6)),
        domain=domain,
        crashes=rng.choice((0.0, 0.1, 0.3)),
        functions=rng.choice((("read", "write", "cas"), ("read", "write"), ("read", "cas"))),
    )
    for _ in range(rng.choice((0, 1, 1, 2))):
        lines = spoiled(rng, lines, domain)
    return lines


@pytest.mark.parametrize("failed_cas_observes", [True, False])
def test_the_verdict_is_that_of_trying_everything(failed_cas_observes: bool) -> None:
    model = Register(failed_cas_observes=failed_cas_observes)
    rng = random.Random(1)
    histories = [_made(rng, (4, 6, 8), rng.choice((2, 3, 6))) for _ in range(600)]
    expected = [
        codes.VALID if linearizable_by_force(lines, model) else codes.INVALID for lines in histories
    ]
    assert _judged(histories, model) == expected
    assert 100 < sum(expected) < 500


def test_the_verdict_on_longer_histories_is_that_of_the_searches_in_python() -> None:
    model = Register(failed_cas_observes=True)
    rng = random.Random(2)
    histories = [_made(rng, (20, 40, 60), rng.choice((3, 5, 9))) for _ in range(300)]
    expected = [
        codes.VALID if check_linearizable(lines, model).valid is True else codes.INVALID
        for lines in histories
    ]
    assert _judged(histories, model) == expected
    assert 50 < sum(expected) < 250


def test_what_is_too_large_is_left_open() -> None:
    model = Register()
    crashed = history(
        *((at, kind, "write", at % 62) for at in range(63) for kind in ("invoke", "info")),
        *((100, kind, "read", 61 - at) for at in range(62) for kind in ("invoke", "ok")),
    )
    (verdict,) = _judged([crashed], model)
    assert verdict == codes.OPEN
    many = made_history(random.Random(3), operation_count=300, concurrency=8)
    few = history((0, "invoke", "write", 1), (0, "ok", "write", 1))
    assert _judged([many, few], model) == [codes.VALID, codes.VALID]
    for limit in (10, 16, 17):  # 16 is where a set gets its table
        found = _judged([many, few], model, configurations_max=limit)
        assert found == [codes.OPEN, codes.VALID]


def test_a_crashed_write_is_held_no_longer_than_its_value_is_needed() -> None:
    lines: list[tuple[Any, ...]] = []
    for at in range(200):
        lines += [(2 * at, "invoke", "write", at), (2 * at, "info", "write", at)]
        value = at if at % 2 else None
        f = "read" if at % 2 else "write"
        lines += [(1, "invoke", f, value), (1, "ok", f, value)]
    assert _judged([history(*lines)], Register()) == [codes.VALID]


def test_values_and_times_may_be_any_numbers() -> None:
    lines = [(codes.WRITE, -(2**63), 0, 5, 7), (codes.READ, -(2**63), 0, 2**60, 2**61)]
    rows, starts = np.array([(*line, line[-1]) for line in lines]), np.array([0, 1, 1, 2])
    found, _ = registers.judge_table(starts, rows, 0, 10)
    assert list(found) == [codes.VALID, codes.VALID, codes.INVALID]


# --- as a check in one process uses it -------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short histories are worth it, too."""
    monkeypatch.setattr(linearizable, "LINES_MIN", 0)


def _both(
    lines: list[Op], model: Register, monkeypatch: pytest.MonkeyPatch
) -> tuple[LinearizabilityResult, LinearizabilityResult]:
    """The results with and without what is compiled, peaks left out, which differ."""
    fast = check_linearizable(iter(lines), model)
    with monkeypatch.context() as without:
        without.setattr(compiled, "available", lambda: False)
        plain = check_linearizable(iter(lines), model)
    assert all(one.configurations_peak > 0 for one in fast.keys)
    fast, plain = (
        replace(one, keys=tuple(replace(key, configurations_peak=0) for key in one.keys))
        for one in (fast, plain)
    )
    return fast, plain


def _several(rng: random.Random, spoil: float) -> list[Op]:
    """Histories of registers whose names and values are of many kinds, mixed with each other."""
    names = ("x", 1, None, [1, "y"], 2.5)
    domain = (0, "a", [1, 2], {"b": [3]}, 1.5, -7)
    each = []
    for number, name in enumerate(names):
        lines = made_history(
            rng, operation_count=30, concurrency=4, domain=6, crashes=rng.choice((0.0, 0.1))
        )
        if rng.random() < spoil:
            lines = spoiled(rng, lines, 6)
        each.append([_renamed(op, 1_000 * number, name, domain) for op in lines])
    merged: list[Op] = []
    while any(each):
        op = rng.choice([lines for lines in each if lines]).pop(0)
        merged.append(replace(op, index=len(merged)))
    return merged[: rng.randrange(len(merged))] if rng.random() < 0.3 else merged


def _renamed(op: Op, processes: int, name: Any, domain: Sequence[Any]) -> Op:
    value = op.value
    if isinstance(value, list):
        value = [domain[one] for one in value]
    elif value is not None:
        value = domain[value]
    assert isinstance(op.process, int)
    return replace(op, process=op.process + processes, key=name, value=value)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("spoil", [0.0, 0.3])
def test_a_check_says_the_same_with_and_without_it(
    spoil: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it: keys in their order, counts, counterexamples."""
    rng = random.Random(4)
    for _ in range(40):
        model = Register(
            failed_cas_observes=rng.random() < 0.5, nil_read_matches=rng.random() < 0.5
        )
        lines = _several(rng, spoil)
        if rng.random() < 0.1:
            lines.sort(key=lambda op: op.process)  # by clients, not by time
        fast, plain = _both(lines, model, monkeypatch)
        assert fast == plain


@pytest.mark.usefixtures("eager")
def test_threads_that_share_the_keys_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(6)
    model = Register(failed_cas_observes=True)
    several = [_several(rng, 0.3) for _ in range(20)]
    several = [lines for lines in several if len(lines) > 250]
    alone = [check_linearizable(lines, model) for lines in several]
    judging = set()
    together = threading.Barrier(3, timeout=60)
    judge_table = registers.judge_table

    def noted(*arguments: Any) -> Any:
        judging.add(threading.get_ident())
        together.wait()
        return judge_table(*arguments)

    monkeypatch.setattr("jepsen.compiled.registers.os.cpu_count", lambda: 3)
    monkeypatch.setattr("jepsen.compiled.registers.SHARE_ROWS", 30)
    monkeypatch.setattr("jepsen.compiled.registers.judge_table", noted)
    assert [check_linearizable(lines, model) for lines in several] == alone
    assert len(several) > 5
    assert len(judging) >= 3


@pytest.mark.usefixtures("eager")
def test_it_is_what_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("the searches in Python are asked")

    monkeypatch.setattr(linearizable, "_check_history", refused)
    lines = _several(random.Random(5), 0.0)
    assert check_linearizable(lines, Register(failed_cas_observes=True)).valid is True


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "lines",
    [
        history((0, "ok", "read", 1)),
        history((0, "invoke", "read", None), (0, "invoke", "read", None)),
        history((0, "invoke", "enqueue", 1), (0, "ok", "enqueue", 1)),
        history((0, "invoke", "cas", 1), (0, "ok", "cas", 1)),
        history((0, "invoke", "cas", [1, 2, 3]), (0, "ok", "cas", [1, 2, 3])),
    ],
)
def test_what_is_wrong_is_said_as_ever(lines: list[Op], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((HistoryError, ValueError, TypeError)) as fast:
        check_linearizable(lines, Register())
    monkeypatch.setattr(compiled, "available", lambda: False)
    with pytest.raises((HistoryError, ValueError, TypeError)) as plain:
        check_linearizable(lines, Register())
    assert (type(fast.value), str(fast.value)) == (type(plain.value), str(plain.value))


@pytest.mark.usefixtures("eager")
def test_a_numba_that_cannot_be_imported_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _several(random.Random(6), 0.0)
    model = Register(failed_cas_observes=True)
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "jepsen.compiled.registers", None)
        refused = check_linearizable(lines, model)
    assert refused.valid is check_linearizable(lines, model).valid is True


@pytest.mark.usefixtures("eager")
def test_a_map_is_its_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = history(
        (0, "invoke", "write", [1, 2]),
        (0, "ok", "write", [1, 2]),
        (0, "invoke", "cas", {1: 2, 3: 4}),
        (0, "ok", "cas", {1: 2, 3: 4}),
    )
    fast, plain = _both(lines, Register(), monkeypatch)
    assert fast.valid is plain.valid is True


@pytest.mark.usefixtures("eager")
def test_what_equals_nothing_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = float("nan")
    lines = history(
        (0, "invoke", "write", strange),
        (0, "ok", "write", strange),
        (0, "invoke", "read", None),
        (0, "ok", "read", strange),
    )
    fast, plain = _both(lines, Register(), monkeypatch)
    assert fast.valid is plain.valid is False


@pytest.mark.req("J7")
def test_it_is_compiled_from_an_archive_too(tmp_path: Path) -> None:
    """As Spark ships it: no place to keep what was compiled."""
    write_archive(tmp_path / "jepsen.zip")
    program = (
        "from jepsen.compiled import registers; print(registers.__file__, registers.hashed(0, 0))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": f"{tmp_path / 'jepsen.zip'}:{Path(numba.__file__).parents[1]}"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{tmp_path}/jepsen.zip/jepsen/compiled/registers.py 0\n"
