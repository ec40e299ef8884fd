"""An authorizer is found by its name."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest
import structlog

from raftctl.errors import ConfigError
from raftctl.security import Authorizer, StandardAuthorizer, _plugin, load_authorizer
from tests.kit.authorizing import ListedActions, RuledAuthorizer
from tests.kit.example_broker import ROOT, block, entry_points

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs/how-to/write-an-authorizer.md"
LOG = structlog.get_logger()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint(name, "tests.kit.authorizing:ListedActions", _plugin.AUTHORIZER_GROUP)
        for name in ("standard", "another")
    ]
    monkeypatch.setattr(_plugin, "entry_points", lambda group: points)


@pytest.mark.req("P3")
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "name", ["another", "standard", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
)
def test_an_authorizer_is_made_by_its_name(name: str) -> None:
    made = load_authorizer(name, {"super.users": "User:root"}, LOG)
    assert isinstance(made, ListedActions)
    assert made.config == {"super.users": "User:root"}
    assert made.log is LOG


@pytest.mark.req("P3")
@pytest.mark.usefixtures("installed")
def test_an_unknown_authorizer_is_an_error_that_lists_those_installed() -> None:
    with pytest.raises(ConfigError, match="no authorizer 'Own'; installed: another, standard"):
        load_authorizer("Own", {}, LOG)


def install(monkeypatch: pytest.MonkeyPatch, pyproject: str) -> None:
    """Let these be the plug-ins: those of the environment may be older than this tree."""
    points = [
        EntryPoint(name, target, _plugin.AUTHORIZER_GROUP)
        for name, target in entry_points(pyproject, _plugin.AUTHORIZER_GROUP).items()
    ]
    monkeypatch.setattr(_plugin, "entry_points", lambda group: points)


@pytest.mark.req("P3", "S4")
def test_the_project_has_the_standard_authorizer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, (ROOT / "pyproject.toml").read_text())
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    made: Authorizer = load_authorizer(name, {}, LOG)
    assert type(made) is StandardAuthorizer
    with pytest.raises(ConfigError, match=r"super\.users"):
        load_authorizer("standard", {"super.users": "root"}, LOG)


@pytest.mark.req("P3")
def test_the_authorizer_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "own_topics.py").write_text(block(PAGE, "python"))
    monkeypatch.syspath_prepend(str(tmp_path))
    install(monkeypatch, f"[project]\nname = 'own-topics'\n{block(PAGE, 'toml')}")
    made = load_authorizer("own-topics", {}, LOG)
    del sys.modules["own_topics"]
    assert isinstance(made, StandardAuthorizer)
    ruled = RuledAuthorizer()
    ruled.authorizer = made
    ruled.add("ALLOW User:bob READ TOPIC alice.orders", "DENY User:alice ALL GROUP *")
    assert ruled.allows("User:alice WRITE TOPIC alice.orders")
    assert ruled.allows("User:bob READ TOPIC alice.orders")
    assert not ruled.allows("User:bob WRITE TOPIC alice.orders")
    assert not ruled.allows("User:ANONYMOUS WRITE TOPIC ANONYMOUS.orders")
    assert not ruled.allows("User:alice READ GROUP alice.readers")
    assert ruled.allows_some("User:alice WRITE TOPIC")
    assert not ruled.allows_some("User:ANONYMOUS WRITE TOPIC")
