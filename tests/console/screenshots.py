"""Pictures of the console for the docs: `python -m tests.console.screenshots`.

The double serves a cluster in trouble, so the pictures show what matters, and no machine's names.
A browser packs a PNG quickly, not well; so it is packed once more.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from tests.console.browsers import chromium
from tests.console.double import serving
from tests.console.double_data import troubled
from tests.console.walks import visit

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "images" / "console"
WIDE, PHONE = (1160, 720), (360, 700)
PICTURES: dict[str, tuple[str, str, tuple[int, int]]] = {
    "overview": ("", "light", WIDE),
    "overview-narrow": ("", "light", PHONE),
    "quorum": ("quorum", "dark", WIDE),
    "topic": ("topics/shipments", "light", WIDE),
    "topics-narrow": ("topics", "dark", PHONE),
    "messages": ("topics/orders?tab=messages&from=earliest", "dark", WIDE),
}
"""Name to view, colours and size."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def smaller(picture: bytes) -> bytes:
    """The same picture, its pixels packed as well as they can be."""
    out, pixels, at = [_SIGNATURE], b"", len(_SIGNATURE)
    while at < len(picture):
        size, kind = struct.unpack(">I4s", picture[at : at + 8])
        data = picture[at + 8 : at + 8 + size]
        at += 12 + size
        if kind == b"IDAT":
            pixels += data
            continue
        if kind == b"IEND":
            out.append(_chunk(b"IDAT", zlib.compress(zlib.decompress(pixels), 9)))
        out.append(_chunk(kind, data))
    return b"".join(out)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


async def take(folder: Path) -> int:
    """Take all pictures; returns their bytes."""
    total = 0
    with tempfile.TemporaryDirectory() as profile:
        async with serving(troubled()) as double, chromium(Path(profile)) as page:
            for name, (fragment, colours, size) in PICTURES.items():
                await page.resize(*size)
                await page.media(prefers_color_scheme=colours, prefers_reduced_motion="reduce")
                await page.goto(double.url)
                await visit(page, fragment)
                if name == "messages":
                    await page.click(".recordhead")
                    await page.wait_text("producer 4001", ".recordbody")
                    await page.js("(document.activeElement.blur(), true)")
                await page.js("(scrollTo(0, 0), true)")
                await page.wait("document.getAnimations().length === 0")
                picture = smaller(await page.screenshot())
                total += (folder / f"{name}.png").write_bytes(picture)
    return total


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(take(FOLDER)):,} bytes in {FOLDER}\n")
