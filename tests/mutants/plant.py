"""A plug-in of pytest: plants the edit that the environment names before any test is imported.

Not while plug-ins are loaded: the product imports a library that imports hypothesis, whose own
plug-in must come first.
"""

from __future__ import annotations

import os

from tests.mutants.edit import PLANTED
from tests.mutants.edit_catalog import EDITS


def pytest_configure() -> None:
    """Called when all plug-ins are loaded."""
    name = os.environ.get(PLANTED, "")
    if name:
        next(one for one in EDITS if one.name == name).plant()
