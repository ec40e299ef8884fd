"""The generated pages say what the code says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.cli import reference
from raftctl.config import KEYS

if TYPE_CHECKING:
    from pathlib import Path


def test_every_key_and_command_is_documented() -> None:
    pages = reference.pages()
    assert [key for key in KEYS if f"| `{key}` |" not in pages["configuration.md"]] == []
    for command in ("start", "up", "down", "status", "demo", "storage format", "topics create"):
        assert f"## raftctl {command}\n" in pages["cli.md"]


def test_pages_are_written_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "DIRECTORY", tmp_path / "reference")
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    with pytest.raises(SystemExit, match=r"stale: configuration\.md, cli\.md"):
        reference.main()
    assert not (tmp_path / "reference").exists()
    monkeypatch.setattr("sys.argv", ["reference"])
    reference.main()
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    reference.main()
