"""Words that this project gave up, and the packages that still have them: `tests/words.txt`.

A word that the field has another word for, or that has many meanings, must not come back. A line
of the table names a word and the packages where it is still allowed. `python -m tests.words` takes
out of the table what is clean by now; it never adds anything.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "words.txt"
PRODUCT = ("raftctl", "broker", "jepsen")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
GENERATED = ("docs/reference", "docs/requirements.md")
"""Their words come from the code, or are names of files."""
INSTEAD = {
    "anew": "again",
    "arrivals": "queue, changes",
    "as ever": "as before",
    "errand": "command, effect",
    "forgetful": "unclean shutdown",
    "hears of": "receives, learns",
    "news": "changes, dirty",
    "settle": "resolve, reconcile, recover, commit: the one that is meant",
    "settled": "the same",
    "settles": "the same",
    "settling": "the same",
    "standings": "checkpoints",
    "tells": "reports, returns, notifies",
    "told": "response, notified, logged",
    "unawares": "without noticing",
    "visits": "search",
    "whoever": "a noun: the caller, the leader",
}
"""Word to what is said instead."""


def pattern(word: str) -> re.Pattern[str]:
    """The word by itself or as a part of a name: `told`, `told_offset`, `SessionNews`."""
    camel = "".join(part.capitalize() for part in word.split())
    return re.compile(rf"(?i:(?<![a-z]){word}(?![a-z]))|{camel}(?![a-z])")


def place(path: Path) -> str:
    """The package of a module, such as `broker/log`, or the folder of a page."""
    return "/".join(path.relative_to(ROOT).parts[:2])


@cache
def texts() -> dict[str, str]:
    """Place to all its text."""
    modules = [p for package in PRODUCT for p in sorted((ROOT / package).rglob("*.py"))]
    pages = [p for one in PAGES for p in sorted(ROOT.glob(one))]
    found: dict[str, list[str]] = {}
    for path in [*modules, *pages]:
        found.setdefault(place(path), []).append(path.read_text(encoding="utf-8"))
    return {name: "\n".join(parts) for name, parts in found.items() if name not in GENERATED}


def found(word: str) -> set[str]:
    """The places that have the word."""
    return {name for name, text in texts().items() if pattern(word).search(text)}


def allowed() -> dict[str, set[str]]:
    """The table: word to the places that may still have it."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    split = [line.partition(":") for line in lines if line and not line.startswith("#")]
    return {word: set(places.split()) for word, _, places in split}


def main() -> int:
    """Shrinks the table."""
    table = allowed()
    kept = {word: sorted(table.get(word, set()) & found(word)) for word in sorted(INSTEAD)}
    lines = ["# Written by `python -m tests.words`, which only takes away."]
    lines += [f"{word}: {' '.join(places)}" for word, places in kept.items() if places]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
