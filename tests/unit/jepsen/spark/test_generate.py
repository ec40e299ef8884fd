"""Generated histories, without Spark: one process finds exactly what is said to be wrong."""

from __future__ import annotations

import json
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.kafka import check_kafka
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.linearizable.quiescence import parts
from jepsen.checkers.registry import linearizable, model_named
from jepsen.cli.main import run
from jepsen.errors import InputError
from jepsen.history import OpType, operations
from jepsen.spark.recipe import Expected, Recipe
from tests.kit.spark.equality import generated

pytest.importorskip("pyarrow", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jepsen.history import Op

pytestmark = pytest.mark.req("J7")


def _found(recipe: Recipe, history: Sequence[Op]) -> Counter[Expected]:
    checker = check_kafka if recipe.workload == "log" else linearizable(model_named("register"))
    verdict = checker(history)
    assert verdict.valid is not bool(recipe.faults)
    assert verdict.notes == ()
    return Counter(
        Expected(json.dumps(one.detail["key"]), one.name, one.detail.get("value"))
        for one in verdict.anomalies
    )


RECIPES = [
    Recipe("register", 2000, 40, 7, crashes=0.1),
    Recipe("register", 90, 30, 30, processes=1, crashes=0.5, seed=1),
    Recipe("unique-register", 2000, 40, 7, crashes=0.1),
    Recipe("unique-register", 300, 1, crashes=0.0),
    Recipe("register", 2000, 4, 3, crashes=0.1, barrier_every=25),
    Recipe("log", 1200, 3, 20, crashes=0.1),
    Recipe("log", 333, 3, 27, processes=1, seed=1),
    Recipe("log", 205, 2, crashes=0.3),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_exactly_what_is_expected_is_found(tmp_path: Path, recipe: Recipe) -> None:
    from jepsen.spark.generate import expected

    history = generated(recipe, tmp_path)
    wanted = Counter(expected(recipe))
    assert _found(recipe, history) == wanted
    assert wanted.total() >= recipe.faults
    assert len({op.index for op in history}) == len(history)


def test_a_history_is_like_its_recipe(tmp_path: Path) -> None:
    recipe = Recipe("unique-register", 4000, 4, 1, processes=3, crashes=0.05)
    history = generated(recipe, tmp_path)
    mine = operations(history)
    kinds = Counter(one.type for one in mine)
    assert len(mine) == 4000
    assert 100 < kinds[OpType.INFO] < 300
    written = Counter((one.invoke.key, one.invoke.value) for one in mine if one.invoke.f == "write")
    assert max(written.values()) == 1
    open_now: set[tuple[int, int | str]] = set()
    peak = Counter[int]()
    for op in history:
        (open_now.add if op.type is OpType.INVOKE else open_now.remove)((op.key, op.process))
        peak[op.key] = max(peak[op.key], sum(key == op.key for key, _ in open_now))
    assert set(peak.values()) == {3}


def test_nothing_is_under_way_at_a_barrier(tmp_path: Path) -> None:
    history = generated(Recipe("register", 300, 1, 1, crashes=0.1, barrier_every=20), tmp_path)
    cut = list(parts(operations(history), Register(failed_cas_observes=True)))
    sizes = [len(part) for part in cut]
    assert max(sizes) <= 20
    # A part ends at each barrier, and elsewhere by chance.
    assert set(range(20, 301, 20)) <= set(accumulate(sizes))
    assert {one.invoke.f for one in operations(history) if one.type is OpType.INFO} == {"read"}


def test_the_same_seed_makes_the_same_history(tmp_path: Path) -> None:
    for workload in ("register", "log"):
        one, same, other = (
            generated(Recipe(workload, 300, 3, 2, seed=seed), tmp_path / f"{workload} {turn}")
            for turn, seed in enumerate((5, 5, 6))
        )
        assert one == same
        assert one != other


def test_what_has_no_room_is_refused() -> None:
    for recipe, room in (
        (Recipe("register", 30, 10, 11), 10),
        (Recipe("unique-register", 20, 10, 1), 0),
        (Recipe("log", 100, 2, 7), 6),
    ):
        with pytest.raises(InputError, match=f"there is room for {room} .*raise --ops"):
            recipe.refuse()
    with pytest.raises(InputError, match=r"--barrier-every 5: only for registers"):
        Recipe("log", barrier_every=5).refuse()


def test_the_command_writes_the_history_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    from jepsen.history.table import OPERATIONS
    from jepsen.spark.generate import expected

    made = tmp_path / "made"
    size = ["--ops", "2000", "--keys", "40", "--faults", "7", "--crashes", "0.1", "--seed", "3"]
    assert run(["spark", "generate", str(made), "--workload", "unique-register", *size]) == 0
    table = pq.read_table(made / "operations")
    assert ["history", *table.schema.names] == OPERATIONS.names
    assert table.num_rows == 2000
    recipe = Recipe("unique-register", 2000, 40, 7, crashes=0.1, seed=3)
    told = json.loads((made / "expected.json").read_text())["anomalies"]
    wanted = [Expected(**one) for one in told]
    assert wanted == list(expected(recipe))
    assert len({one.key for one in wanted}) == 7
    for arguments, why in (
        ([str(made)], "exists already"),
        ([str(tmp_path / "new"), "--keys", "1", "--faults", "2"], "room for 1"),
        ([str(tmp_path / "new"), "--workload", "tree"], "--workload tree"),
    ):
        assert run(["spark", "generate", *arguments]) == 254
        assert why in capsys.readouterr().err
