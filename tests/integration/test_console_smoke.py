"""The console's page in Chromium, on a double of the server: every view, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browsers import chromium
from tests.console.double import serving
from tests.console.double_data import hostile
from tests.console.walks import NAV, ready, unharmed, views_of, visit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.req("W3")
async def test_every_view_with_script_in_every_name(tmp_path: Path) -> None:
    async with serving(hostile()) as double, chromium(tmp_path) as page:
        await page.goto(double.url)
        for link, heading in NAV.items():
            await page.click("#nav a", link)
            await page.wait_text(heading, "h1")
            await ready(page)
        for fragment in views_of(double):
            await visit(page, fragment)
        await unharmed(page)
        await page.resize(360, 740)
        for fragment in views_of(double):
            await visit(page, fragment)
            wide = await page.js("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, fragment
