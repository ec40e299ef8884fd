"""The golden transcripts of the quorum core still come out as they are written."""

from __future__ import annotations

import pytest

from tests.unit.raftctl.raft.transcript import FOLDER, play

FILES = sorted(FOLDER.glob("*.txt"))


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 10


@pytest.mark.req("Q1", "Q2", "Q3", "Q4")
@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_transcript(name: str) -> None:
    """After a deliberate change: `python -m tests.unit.raftctl.raft.transcript --write`."""
    expected = (FOLDER / f"{name}.txt").read_text()
    assert play(expected) == expected
