"""A browser for a file of tests, and worlds for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browsers import BROWSERS, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(params=sorted(BROWSERS))
async def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Page]:
    """A tab of each browser."""
    async with BROWSERS[request.param](tmp_path_factory.mktemp("profile")) as one:
        yield one
