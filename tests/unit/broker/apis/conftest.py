"""The broker that these tests ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.broker.apis.asking import new_broker

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """See `new_broker`."""
    return new_broker()
