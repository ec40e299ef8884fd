"""The compiled search of registers beside trying everything, and beside the searches in Python."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.machine import observed
from jepsen.checkers.models import Register
from jepsen.history import Op, OpType, operations
from jepsen.spark.package import write_archive
from tests.unit.jepsen.histories import history, linearizable_by_force, made_history, spoiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.history import Operation

pytestmark = pytest.mark.req("J4")
np = pytest.importorskip("numpy", reason="needs raftctl[fast]")
numba = pytest.importorskip("numba", reason="needs raftctl[fast]")
registers = pytest.importorskip("jepsen.compiled.registers", reason="needs raftctl[fast]")

NIL = -(2**40)


def _row(one: Operation) -> tuple[int, ...]:
    """(f, a, b, invoked, returned)."""
    invoke, completion = one.invoke, one.completion
    known = completion is not None and one.type is not OpType.INFO
    returned = completion.index if known and completion is not None else registers.NEVER
    a, b = NIL, 0
    if invoke.f == "cas":
        a, b = invoke.value
        f = registers.FAILED_CAS if one.type is OpType.FAIL else registers.CAS
    else:
        f = registers.READ if invoke.f == "read" else registers.WRITE
        value = invoke.value if invoke.f == "write" or completion is None else completion.value
        a = NIL if value is None else value
    return f, a, b, invoke.index, returned


def _judged(histories: Sequence[list[Op]], model: Register, **options: Any) -> list[int]:
    """The verdict on each history, one key's."""
    starts, rows = [0], []
    for lines in histories:
        relevant = [
            one for one in operations(lines) if observed(one, model) or one.type is OpType.INFO
        ]
        rows += [_row(one) for one in sorted(relevant, key=lambda one: one.invoke.index)]
        starts.append(len(rows))
    f, *others = np.array(rows, np.int64).reshape(-1, 5).T.copy()
    found = registers.judge(np.array(starts), f.astype(np.int8), *others, NIL, **options)
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
    histories = [_made(rng, (4, 6, 8), rng.choice((2, 3, 6))) for _ in range(1_000)]
    expected = [
        registers.VALID if linearizable_by_force(lines, model) else registers.INVALID
        for lines in histories
    ]
    assert _judged(histories, model) == expected
    assert 200 < sum(expected) < 800


def test_the_verdict_on_longer_histories_is_that_of_the_searches_in_python() -> None:
    model = Register(failed_cas_observes=True)
    rng = random.Random(2)
    histories = [_made(rng, (20, 40, 60), rng.choice((3, 5, 9))) for _ in range(400)]
    expected = [
        registers.VALID if check_linearizable(lines, model).valid is True else registers.INVALID
        for lines in histories
    ]
    assert _judged(histories, model) == expected
    assert 100 < sum(expected) < 300


def test_what_is_too_large_is_left_open() -> None:
    model = Register()
    crashed = history(
        *((at, kind, "write", at) for at in range(63) for kind in ("invoke", "info")),
        *((100, kind, "read", 62 - at) for at in range(63) for kind in ("invoke", "ok")),
    )
    (verdict,) = _judged([crashed], model)
    assert verdict == registers.OPEN
    many = made_history(random.Random(3), operation_count=300, concurrency=8)
    few = history((0, "invoke", "write", 1), (0, "ok", "write", 1))
    assert _judged([many, few], model) == [registers.VALID, registers.VALID]
    found = _judged([many, few], model, configurations_max=10)
    assert found == [registers.OPEN, registers.VALID]


def test_a_crashed_write_is_held_no_longer_than_its_value_is_needed() -> None:
    lines: list[tuple[Any, ...]] = []
    for at in range(200):
        lines += [(2 * at, "invoke", "write", at), (2 * at, "info", "write", at)]
        value = at if at % 2 else None
        f = "read" if at % 2 else "write"
        lines += [(1, "invoke", f, value), (1, "ok", f, value)]
    assert _judged([history(*lines)], Register()) == [registers.VALID]


def test_values_and_times_may_be_any_numbers() -> None:
    lines = [(registers.WRITE, -(2**63), 0, 5, 7), (registers.READ, -(2**63), 0, 2**60, 2**61)]
    f, *others = np.array(lines, np.int64).T.copy()
    starts = np.array([0, 1, 1, 2])
    assert list(registers.judge(starts, f.astype(np.int8), *others, 0)) == [
        registers.VALID,
        registers.VALID,
        registers.INVALID,
    ]


@pytest.mark.req("J7")
def test_it_is_compiled_from_an_archive_too(tmp_path: Path) -> None:
    """As Spark ships it: no place to keep what was compiled."""
    write_archive(tmp_path / "jepsen.zip")
    program = (
        "from jepsen.compiled import registers; print(registers.__file__, registers._hash(0, 0))"
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
