"""The verdicts that other checkers have given on real histories."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.linearizable.models import Model, MultiRegister, Mutex, Register, StringValue
from jepsen.history.formats import read_edn, read_jepsen_log

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.history import Op

MODELS: dict[str, Model] = {
    "register_cas_nil_init": Register(failed_cas_observes=True),
    "kv_string_append_per_key": StringValue(),
    "cas-register(0)": Register(0, nil_read_matches=True),
    "mutex(false)": Mutex(),
    "multi-register({x 0,y 0})": MultiRegister((("x", 0), ("y", 0)), nil_read_matches=True),
}


def read(path: Path) -> list[Op]:
    text = path.read_text()
    return read_jepsen_log(text) if path.suffix == ".log" else read_edn(text)


@pytest.mark.req("J4")
@pytest.mark.parametrize(
    ("origin", "column", "least"), [("porcupine", "linearizable", 56), ("knossos", "valid", 63)]
)
def test_the_verdicts_are_the_expected_ones(
    histories: Path, origin: str, column: str, least: int
) -> None:
    with (histories / origin / "expected.csv").open() as file:
        rows = list(csv.DictReader(file))
    verdicts = {
        row["file"]: check_linearizable(read(histories / row["file"]), MODELS[row["model"]]).valid
        for row in rows
    }
    assert verdicts == {row["file"]: row[column] == "true" for row in rows}
    assert len(rows) >= least
