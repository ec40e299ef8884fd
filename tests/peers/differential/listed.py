"""The differences that stand, each with its reason: `differences.toml`, and how it is held true.

Each entry names requests and fields by patterns, and how many requests differ so. What no entry
covers is new; an entry whose number is not met no longer tells the truth. What is to be mended
stands in `open.toml`, written by `--count`; there a line that is not met any more is progress.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.peers.differential.comparing import Difference

VALUE_SIZE = 200
"""Characters of a value in a line."""
FILE = Path(__file__).with_name("differences.toml")
OPEN_FILE = Path(__file__).with_name("open.toml")
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Listed:
    """A difference that stands."""

    name: str
    reason: str
    where: Sequence[str]
    """Patterns of `request | field`."""
    requests: int
    """How many requests differ by it."""

    def covers(self, one: Difference) -> bool:
        """Whether this is why."""
        return any(fnmatchcase(f"{one.request} | {one.field}", where) for where in self.where)


def listed(*, with_open: bool = True) -> list[Listed]:
    """All entries, what is open as the last one."""
    document: Mapping[str, Any] = tomllib.loads(FILE.read_text())
    if with_open:
        document = {**document, **tomllib.loads(OPEN_FILE.read_text())}
    return [
        Listed(name, entry["reason"], entry["where"], entry["requests"])
        for name, entry in document.items()
    ]


@dataclass(frozen=True, slots=True)
class Judged:
    """Differences held against the list."""

    unlisted: Sequence[Difference]
    stale: Sequence[str]
    """What the list says and is not so, a sentence each."""
    counted: Mapping[str, int]
    """How many requests differ, by entry."""
    differing: int
    """Requests that differ in something."""


def judged(found: Iterable[Difference], entries: Sequence[Listed]) -> Judged:
    """Each difference belongs to the first entry that covers it."""
    unlisted: list[Difference] = []
    requests: dict[str, set[str]] = defaultdict(set)
    met: Counter[str] = Counter()
    differing: set[str] = set()
    for one in found:
        differing.add(one.request)
        owner = next((entry for entry in entries if entry.covers(one)), None)
        if owner is None:
            unlisted.append(one)
            continue
        requests[owner.name].add(one.request)
        line = f"{one.request} | {one.field}"
        met.update(where for where in owner.where if fnmatchcase(line, where))
    stale = []
    counted = {entry.name: len(requests[entry.name]) for entry in entries}
    for entry in entries:
        if entry.name == OPEN:
            continue
        if counted[entry.name] != entry.requests:
            stale.append(f"{entry.name}: {entry.requests} requests, found {counted[entry.name]}")
        stale += [f"{entry.name}: nothing is like {one}" for one in entry.where if not met[one]]
    return Judged(unlisted, stale, counted, len(differing))


def unexpected(found: Iterable[Difference], entries: Sequence[Listed]) -> list[str]:
    """What is not listed, and what is listed and is not so; a line each."""
    verdict = judged(found, entries)
    return [*lines_of(verdict.unlisted), *verdict.stale]


def lines_of(found: Iterable[Difference]) -> list[str]:
    """A line for all versions of a request that differ alike."""
    versions: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in found:
        request, _, version = one.request.rpartition(" v")
        kafka, ours = (json.dumps(value)[:VALUE_SIZE] for value in (one.kafka, one.ours))
        told = f"{one.field}   KAFKA {kafka}   OURS {ours}"
        versions[request or one.request, told].append(version)
    return [
        f"{request} v{','.join(dict.fromkeys(which))} | {told}"
        for (request, told), which in versions.items()
    ]
