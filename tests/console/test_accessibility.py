"""Every view under axe-core: light, dark, on a phone; nothing wider than its window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console import axe
from tests.console.browsers import chromium
from tests.console.double import serving
from tests.console.double_data import troubled
from tests.console.walks import unharmed, views_of, visit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.browsers import Page

PHONE = (360, 740)
DIALOGS = [
    ("topics", "button", "Create a topic"),
    ("topics/orders", "button", "Delete topic"),
    ("acls", "button", "Create a rule"),
    ("", "#help", ""),
]


async def _still(page: Page) -> None:
    """Wait until nothing flashes: a colour in between may have too little contrast."""
    await page.wait("document.getAnimations().every((one) => one.playState !== 'running')")


@pytest.mark.req("W3")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("colours", "size"), [("light", (1280, 800)), ("dark", (1280, 800)), ("light", PHONE)]
)
async def test_every_view_is_for_everybody(
    tmp_path: Path, colours: str, size: tuple[int, int]
) -> None:
    script, wrong = axe.source(), []
    async with serving(troubled()) as double, chromium(tmp_path) as page:
        await page.resize(*size)
        await page.media(prefers_color_scheme=colours, prefers_reduced_motion="reduce")
        await page.goto(double.url)
        for fragment in views_of(double):
            await visit(page, fragment)
            await _still(page)
            wrong += [f"{fragment} {one}" for one in await axe.violations(page, script)]
            wide = await page.js("document.documentElement.scrollWidth - innerWidth")
            if wide > 0:
                wrong.append(f"{fragment} is {wide} px too wide")
        for fragment, selector, text in DIALOGS:
            await visit(page, fragment)
            if size == PHONE and selector == "#help":
                await page.press("?")
            else:
                await page.click(selector, text)
            await page.wait("document.querySelector('dialog[open]')")
            wrong += [f"{fragment} {text} {one}" for one in await axe.violations(page, script)]
            await page.press("Escape")
            await page.wait("!document.querySelector('dialog')")
        if size == PHONE:
            await page.click("#menu")
            wrong += [f"menu {one}" for one in await axe.violations(page, script)]
        await unharmed(page)
    assert not wrong, "\n".join(sorted(set(wrong)))
