"""`python -m tests.bench.all --quick` for one part: a JSON and a page; figures are not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration.commands import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_a_part_leaves_its_figures_and_a_page(tmp_path: Path) -> None:
    output, page = tmp_path / "all.json", tmp_path / "page"
    where = ["--output", str(output), "--page", str(page)]
    command = [sys.executable, "-m", "tests.bench.all", "--quick", "--only", "puts", *where]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(output.read_text())
    assert document["parts"]["puts"]["ended"] == "ok"
    assert document["figures"]["puts_1_of_256_B_raftctl"]["median"] > 0
    assert "| puts/s of 256 B, 1 outstanding |" in (page / "figures.md").read_text()
    # Another run adds to it, or writes the page of what there is.
    again = tmp_path / "again"
    command = [sys.executable, "-m", "tests.bench.all", "--from", str(output), "--page", str(again)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    assert (again / "figures.md").read_text() == (page / "figures.md").read_text()
