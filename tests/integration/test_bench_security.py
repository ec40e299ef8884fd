"""The figures of `python -m tests.bench.security.main` with few rules; memory has its bound."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.bench.security.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.req("S4")
@pytest.mark.timeout(300)
def test_few_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out" / "figures.json"
    main(["--only", "authorizer", "--rules", "5000", "--turns", "1", "--output", str(file)])
    figures = json.loads(file.read_text())["figures"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == [*figures]
    assert all(figure["median"] > 0 for figure in figures.values())
    # Time depends on the machine; memory does not.
    memory = {name: one["median"] for name, one in figures.items() if name.startswith("memory")}
    assert len(memory) == 3
    assert max(memory.values()) <= 250
