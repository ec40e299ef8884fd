"""An authorizer is found by its name."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import structlog

from raftctl.errors import ConfigError
from raftctl.security import _plugin, load_authorizer
from tests.kit.authorizing import ListedActions

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
