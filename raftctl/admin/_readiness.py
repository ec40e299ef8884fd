"""Whether a node serves: by problems that a look finds, without going back and forth.

A node that has been ready stays so for `GRACE_S` after a problem has come, unless clients find it
no more because of that. So an election or a burst of metadata takes no node out of service. What
has to be so before the first time, such as replicas in sync, is not asked for again: a broker whose
replicas lag still serves, and were it taken out of service, others would get its load and lag too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

GRACE_S = 10.0
"""From a problem until a node that was ready is not any more."""
PATIENCE_S = 300.0
"""For what has to be so before the first time: a disk that failed would keep it from being so."""


class Problem(NamedTuple):
    """A reason why a node is not ready."""

    name: str
    """In the answer, for programs."""
    message: str
    """For people: one sentence."""
    at_once: bool = False
    """Whether clients do not find the node meanwhile, so that there is no grace."""


async def _nothing() -> list[Problem]:
    return []


class Readiness:
    """One node's; a `Ticking` of its metrics, so that it looks though nobody asks."""

    def __init__(
        self,
        look: Callable[[], list[Problem]],
        now_s: Callable[[], float],
        look_before: Callable[[], Awaitable[list[Problem]]] = _nothing,
    ) -> None:
        """`look` finds what is a problem at any time, `look_before` what is before the first."""
        self._look = look
        self._look_before = look_before
        self._now_s = now_s
        self._well_at: float | None = None
        """When there was no problem last; None before the first time."""
        self._waits_since: float | None = None
        """When nothing was left but what `look_before` finds."""

    def tick(self) -> None:
        """Note that all is well, if it is."""
        if self._well_at is not None and not self._look():
            self._well_at = self._now_s()

    async def problems(self) -> list[Problem]:
        """Return why the node is not ready; empty if it is."""
        found = self._look()
        if not found and self._well_at is None:
            found = await self._first_problems()
        now_s = self._now_s()
        if not found:
            self._well_at = now_s
            return []
        grace = self._well_at is not None and now_s - self._well_at < GRACE_S
        return [] if grace and not any(one.at_once for one in found) else found

    async def _first_problems(self) -> list[Problem]:
        now_s = self._now_s()
        if self._waits_since is None:
            self._waits_since = now_s
        return [] if now_s - self._waits_since >= PATIENCE_S else await self._look_before()
