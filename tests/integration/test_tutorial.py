"""The tutorial, typed as it stands: every command, every line that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.howto_pages import TUTORIAL, Reader, steps_to_run
from tests.integration.test_howto_pages import Outcome, check

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 120
ENDS = {"jepsen check stale.jsonl": Outcome(1, "nonlinearizable")}


@pytest.mark.timeout(400)
def test_the_tutorial(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for step in steps_to_run(TUTORIAL):
            expected = ENDS.get(step.command, Outcome(0, ""))
            check(step, reader.run(step.command, TIMEOUT_S), expected)
    finally:
        reader.run("raftctl down")
        reader.close()
