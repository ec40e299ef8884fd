"""What runs have reached is counted, and compared with what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jepsen.errors import InputError
from jepsen.simulator.coverage import known_in, summary
from jepsen.simulator.runner.determinism import RunResult, covered_line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J1")


def test_a_run_tells_what_it_has_reached_in_a_line_that_its_output_does_not_show() -> None:
    reached = {"fault kill leader", "role leader Tick leader"}
    output = f"before\n{covered_line(reached)}seed 1: ok, trace ab\n"
    result = RunResult.parse(1, 0, output)
    assert result.covered == reached
    assert result.output == "before\nseed 1: ok, trace ab\n"
    assert covered_line(()) == ""
    assert RunResult.parse(1, 0, "seed 1: ok, trace ab\n").covered == set()


def test_what_is_reached_is_compared_with_what_is_known() -> None:
    known = {"role leader Tick leader", "role leader Tick resigned", "fault kill leader"}
    seen = {"role leader Tick leader", "fault kill leader", "fault kill down"}
    assert summary(seen, known) == (
        "coverage: 1 of 2 role x event x role; 2 of 2 fault x state\n"
        "new: fault kill down\n"
        "not reached: role leader Tick resigned\n"
    )
    many = {f"fault kill {number}" for number in range(10)}
    assert summary(many, many) == "coverage: 0 of 0 role x event x role; 10 of 10 fault x state\n"
    assert summary((), many).endswith(" and 2 more\n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--coverage .*missing\.txt: cannot be read"):
        known_in(str(tmp_path / "missing.txt"))
