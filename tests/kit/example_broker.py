"""The plug-in that docs/how-to/write-a-broker.md shows, taken from the page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from raftctl.plugins import BROKER_GROUP

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/write-a-broker.md"
MODULE = "quiet_broker"


def code() -> str:
    """The page's broker."""
    return block(PAGE, "python")


def brokers() -> dict[str, str]:
    """The page's entry points."""
    return entry_points(f"[project]\nname = 'quiet-broker'\n{block(PAGE, 'toml')}")


def entry_points(pyproject: str, group: str = BROKER_GROUP) -> dict[str, str]:
    """The plug-ins that a project file names."""
    found = tomllib.loads(pyproject)["project"]["entry-points"][group]
    return {str(name): str(target) for name, target in found.items()}


def block(page: Path, language: str) -> str:
    """The first block of a language on a page."""
    found = re.search(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    return found[1]
