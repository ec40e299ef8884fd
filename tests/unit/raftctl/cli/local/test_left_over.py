"""What a demo that was killed leaves running."""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.local._left_over import PREFIX, left_over
from raftctl.cli.main import BAD_INPUT, run
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.layout import layout_to_json, make_layout
from raftctl.localcluster.processes import OWNER_FILE, ProcessRef, mark_as_own, save_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("A1", "A2")


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a demo that is gone; whose nodes run, as far as can be seen."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(LocalCluster, "is_running", lambda *_: True)
    folder = tmp_path / f"{PREFIX}1" / "queue" / "nodes"
    folder.mkdir(parents=True)
    layout = make_layout("7XUXvYGvQ5CD_zZCvkGlmw", [2], [1], {})
    (folder / "cluster.json").write_text(json.dumps(layout_to_json(layout)))
    save_process(folder / OWNER_FILE, ProcessRef(2**22 + 1, 1.0))
    return folder


def test_nodes_of_a_demo_that_is_gone_are_named(
    left: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(left_over(tmp_path)) == [left]
    for command in (["down"], ["up", "--brokers", "0"]):
        assert run([*command, "--dir", str(tmp_path / "none")]) == BAD_INPUT
        assert f"raftctl down --dir {left} stops them" in capsys.readouterr().err
    (left / "cluster.json").write_text("{}")
    assert list(left_over(tmp_path)) == [], "no cluster that can be read"


def test_a_demo_that_runs_has_left_nothing(left: Path, tmp_path: Path) -> None:
    mark_as_own(left)
    assert list(left_over(tmp_path)) == []


def test_a_demo_whose_nodes_are_gone_has_left_nothing(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalCluster, "is_running", lambda *_: False)
    assert list(left_over(tmp_path)) == []


def test_what_is_to_be_stopped_is_not_named(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalCluster, "stop_all", lambda *_: [])
    assert run(["down", "--dir", str(left)]) == 0
    assert capsys.readouterr().err == ""
