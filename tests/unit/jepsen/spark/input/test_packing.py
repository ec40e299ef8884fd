"""How operations on registers travel to the compiled search, without Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.registry import model_named
from jepsen.history import operations
from tests.kit.spark.equality import ODD_VALUES, random_history
from tests.unit.jepsen.histories import history

pytest.importorskip("pyarrow", reason="needs raftctl[spark]")
pytest.importorskip("pyspark", reason="needs raftctl[spark]")
pytest.importorskip("numba", reason="needs raftctl[spark]")
# Whoever comes first compiles, which takes seconds of a processor that others may use.
pytestmark = pytest.mark.timeout(900)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from jepsen.history import Op

Found = dict[tuple[str, str], tuple[int, int]]
"""(history, key as text) to (operations, verdict)."""
_HOT = 10**6


def _judged(
    histories: Mapping[str, Sequence[Op]], *, lenient: bool, parts: int, initial: Any = None
) -> Found:
    """What the compiled search says, after the way through Parquet and packages."""
    import pyarrow as pa

    from jepsen.history.table import batch_of, row_of
    from jepsen.spark.registers import COLUMNS, NIL, judged, packages

    rows = [
        row_of(name, lenient, one) for name, lines in histories.items() for one in operations(lines)
    ]
    random.Random(0).shuffle(rows)
    pieces = [
        pa.Table.from_batches([batch_of(rows[at : at + 500])]).select(COLUMNS)
        for at in range(0, len(rows), 500)
    ]
    by_part: dict[int, list[pa.RecordBatch]] = {part: [] for part in range(parts)}
    for batch in packages(pieces, parts):
        for at, part in enumerate(batch.column("part").to_pylist()):
            by_part[part].append(batch.slice(at, 1))
    found: Found = {}
    for mine in by_part.values():
        for row in judged(mine, NIL if initial is None else initial, _HOT).to_pylist():
            assert (row["history"], row["key"]) not in found
            found[row["history"], row["key"]] = row["operations"], row["verdict"]
    return found


def _in_one_process(
    histories: Mapping[str, Sequence[Op]], *, lenient: bool, initial: Any = None
) -> dict[tuple[str, str], tuple[int, bool]]:
    from jepsen.history.table import text_of

    model = model_named("cas-register", lenient=lenient, initial=initial)
    found = {}
    for name, lines in histories.items():
        for one in check_linearizable(lines, model).keys:
            assert one.valid != "unknown"
            found[name, text_of(one.key)] = one.operation_count, one.valid
    return found


@pytest.mark.req("J7")
@pytest.mark.parametrize(("lenient", "initial"), [(False, None), (True, None), (False, 1)])
def test_what_is_judged_has_the_verdict_of_one_process(lenient: bool, initial: Any) -> None:
    from jepsen.compiled.codes import INVALID, OPEN, VALID

    made = {str(seed): random_history(random.Random(seed)) for seed in range(100)}
    found = _judged(made, lenient=lenient, parts=3, initial=initial)
    wanted = _in_one_process(made, lenient=lenient, initial=initial)
    assert {key: count for key, (count, _) in found.items()} == {
        key: count for key, (count, _) in wanted.items()
    }
    words = {True: VALID, False: INVALID}
    sure = {key: verdict for key, (_, verdict) in found.items() if verdict != OPEN}
    assert sure == {key: words[wanted[key][1]] for key in sure}
    assert min(list(sure.values()).count(verdict) for verdict in words.values()) > 25


@pytest.mark.req("J7")
def test_values_that_are_no_small_numbers_are_left_to_the_search() -> None:
    from jepsen.compiled.codes import OPEN, VALID

    small = (5, -1, 10**17)
    made = {
        repr(value): history(
            (0, "invoke", "write", value),
            (0, "ok", "write", value),
            (0, "invoke", "read", None),
            (0, "ok", "read", value),
        )
        for value in ODD_VALUES
    }
    made["pair"] = history((0, "invoke", "cas", [1]), (0, "info", "cas", [1]))
    made["other"] = history((0, "invoke", "add", 1), (0, "ok", "add", 1))
    found = _judged(made, lenient=False, parts=2)
    left = {name for (name, _), (_, verdict) in found.items() if verdict == OPEN}
    assert left == made.keys() - {repr(value) for value in small}
    assert {verdict for (name, _), (_, verdict) in found.items() if name not in left} == {VALID}


@pytest.mark.req("J7")
def test_what_says_nothing_is_counted() -> None:
    from jepsen.compiled.codes import VALID

    lines = history(
        (0, "invoke", "write", "x"),
        (0, "fail", "write", "x"),
        (1, "invoke", "read", None),
        (1, "info", "read", None),
        (2, "invoke", "cas", [7, 7]),
        (2, "info", "cas", [7, 7]),
    )
    assert _judged({"h": lines}, lenient=False, parts=1) == {("h", "null"): (3, VALID)}


@pytest.mark.req("J7")
@pytest.mark.parametrize("named", [True, False])
def test_pieces_of_files_are_the_rows_of_the_files(tmp_path: Path, named: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from jepsen.history.table import OPERATIONS, batch_of, row_of
    from jepsen.spark.input import read_piece, rows_of_keys
    from jepsen.spark.input._pieces import pieces_of

    rows = [row_of("h", False, one) for one in operations(random_history(random.Random(3)))]
    table = pa.Table.from_batches([batch_of(rows)])
    path = tmp_path / "part.parquet"
    pq.write_table(table if named else table.drop_columns(["history", "lenient"]), path, 7)
    pieces = list(pieces_of(path, "f", None if named else True))
    if named:
        name, lenient = "f:h", False
    else:
        name, lenient = "f", True
    wanted = [(name, lenient, *row[2:]) for row in rows]
    read = [row for piece in pieces for row in read_piece(piece, OPERATIONS.names).to_pylist()]
    assert [tuple(row.values()) for row in read] == wanted
    key = rows[0][2]
    batches = rows_of_keys(pieces, wanted=frozenset({(name, key), ("g", "absent")}))
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert found == [row for row in wanted if row[2] == key]
    assert not list(rows_of_keys(pieces, wanted=frozenset({("another", key)})))
