"""The keys of this node's image in order, for who lists them page by page.

The image's map knows no order, and a look at every key for each page is too much where there are
many. So an index is made when the first page of many keys is asked for, a slice at a time so that
nobody waits, and brought up to date by what has changed since whenever the next is asked for. A
node that is not asked keeps none; writes pay nothing but to be noted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import merge, nsmallest
from itertools import islice
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from raftctl.kv._follower import KvFollower
    from raftctl.metadata.image import MetadataDelta, MetadataImage

SCAN_MAX = 10_000
"""So many keys are looked at for each page rather than indexed."""
STEP_KEYS = 4_000
"""Keys that are sorted or looked at in one step, about a millisecond."""
CHANGES_MAX = 1_000_000
"""Changed keys since the index was used; of more, the index is given up."""


class KeyIndex:
    """A publisher of the loader."""

    def __init__(self, follower: KvFollower) -> None:
        self._follower = follower
        self._keys: SortedList | None = None
        self._changes: deque[tuple[str, ...]] | None = None
        """The keys that have changed since the index was right; None while there is none."""
        self._changed = 0
        self._building = asyncio.Lock()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note what has changed."""
        if self._changes is None or not delta.changed_kv:
            return
        self._changes.append(tuple(delta.changed_kv))
        self._changed += len(delta.changed_kv)
        if self._changed > CHANGES_MAX:
            self._keys = self._changes = None

    async def page(self, prefix: str, after: str, limit: int) -> tuple[list[str], MetadataImage]:
        """Return the first keys with that prefix and beyond `after`, and their image."""
        image = self._follower.image
        if len(image.kv) <= SCAN_MAX:
            return nsmallest(limit, _matching(image.kv, prefix, after)), image
        async with self._building:
            keys = await self._up_to_date()
            image = self._follower.image
            # From here on nothing is awaited, so the index is right for that image.
            if keys is not None:
                start = keys.bisect_left(prefix) if after < prefix else keys.bisect_right(after)
                found = list(islice(keys.islice(start), limit))
                return [key for key in found if key.startswith(prefix)], image
        return await _scan(image, prefix, after, limit), image

    async def _up_to_date(self) -> SortedList | None:
        """The index of the newest image; None if so much changes that it cannot be made."""
        if self._keys is None:
            await self._build()
        slices = Slices()
        while self._keys is not None and self._changes:
            for key in self._changes.popleft():
                self._update(self._keys, key)
            if self._changes:
                await slices.rest()
        self._changed = 0
        return self._keys

    def _update(self, keys: SortedList, key: str) -> None:
        is_there = key in keys
        if key in self._follower.image.kv:
            if not is_there:
                keys.add(key)
        elif is_there:
            keys.remove(key)

    async def _build(self) -> None:
        changes = self._changes = deque()
        self._changed = 0
        unsorted = iter(self._follower.image.kv)
        runs: list[list[str]] = []
        slices = Slices()
        while run := sorted(islice(unsorted, STEP_KEYS)):
            runs.append(run)
            await slices.rest()
        merged, ordered = merge(*runs), list[str]()
        while some := list(islice(merged, STEP_KEYS)):
            ordered += some
            await slices.rest()
        if self._changes is changes:
            self._keys = SortedList(ordered)


async def _scan(image: MetadataImage, prefix: str, after: str, limit: int) -> list[str]:
    found: list[str] = []
    keys, slices = iter(image.kv), Slices()
    while some := list(islice(keys, STEP_KEYS)):
        found = nsmallest(limit, [*found, *_matching(some, prefix, after)])
        await slices.rest()
    return found


def _matching(keys: Iterable[str], prefix: str, after: str) -> Iterator[str]:
    return (key for key in keys if key > after and key.startswith(prefix))
