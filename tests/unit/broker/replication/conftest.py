"""Every test of this folder checks the invariants of the cores after each event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.invariants import watched

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="package")
def invariants() -> Iterator[None]:
    with watched():
        yield
