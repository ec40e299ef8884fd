"""axe-core, which looks for what shuts people out of a page; npm has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.peers.tools import INSTALL_TIMEOUT_S, installed, need, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.browsers import Page

VERSION = "4.14.1"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def _install(folder: Path) -> None:
    package = ["npm", "install", "--no-audit", "--no-fund", f"axe-core@{VERSION}"]
    run(package, folder=folder, timeout_s=INSTALL_TIMEOUT_S)


def source() -> str:
    """The script of axe-core."""
    need("npm")
    modules = installed("axe-core", VERSION, _install) / "node_modules"
    return (modules / "axe-core" / "axe.min.js").read_text()


async def violations(page: Page, script: str) -> list[str]:
    """What is wrong with what the page shows now: rule, and the element."""
    if not await page.js("Boolean(window.axe)"):
        await page.js(f"(() => {{ {script}\n; return true; }})()")
    options = json.dumps({"runOnly": {"type": "tag", "values": RULES}})
    found: dict[str, Any] = await page.js(
        f"axe.run(document, {options}).then((seen) => ({{all: seen.violations.flatMap((one) =>"
        " one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 160)}"
        " ${(node.any[0] ?? node.all[0] ?? node.none[0] ?? {}).message ?? ''}`))}))"
    )
    wrong: list[str] = found["all"]
    return wrong
