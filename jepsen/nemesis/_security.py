"""Faults of a secured cluster: other certificates, another password, rules taken away.

Each is reported only if it took effect, as a client sees it: a listener shows the new certificate,
a broker takes the new password and refuses the one before, a broker has the rules no more.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from jepsen.errors import ClusterError
from jepsen.nemesis.plan import CERTIFICATE, EVERY_OPERATION

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from jepsen.environments import AccessControl, Environment, Rule

AUTHORITIES = (1, 2)
"""Those that every node and client of a secured cluster trusts."""
REACHES_S, POLL_S = 5.0, 0.2
"""How long a change may take from the controller to a broker."""
CHANGE_S = 5.0
"""How long a change may take: other faults wait for it, also those that hinder it."""
LATE_S = 2.0
"""After which a healed network has delivered what it held back."""
HEALING_TRIES = 4


class SecurityFaults:
    """Performs them on an environment whose clients' user needs `rules`."""

    def __init__(self, environment: Environment, rules: Sequence[Rule], rng: random.Random) -> None:
        self._environment = environment
        self._rules = rules
        self._random = rng
        self._is_in_doubt = False
        """A change was not acknowledged: it may come about at any time, also after later ones."""
        self._is_revoked = False

    async def renew(self, nodes: Sequence[str], authority: int | None = None) -> list[object]:
        """Give nodes new certificates by an authority: [authority, nodes that serve them].

        `authority`: None for one by chance. Return [] if no node serves its own in time.
        ClusterError for an authority that nobody trusts, as a plan may name it.
        """
        authority = authority or self._random.choice(AUTHORITIES)
        if authority not in AUTHORITIES:
            raise ClusterError(f"certificates: authority {authority}; choose 1 or 2")
        inject = self._environment.inject
        served = await asyncio.gather(*(inject(CERTIFICATE, [node], authority) for node in nodes))
        hit = [node for node, done in zip(nodes, served, strict=True) if done]
        return [authority, hit] if hit else []

    async def change_password(self) -> list[str]:
        """Change the password of the clients' user; return the user, or [] without an effect."""
        access = self._access
        await self._in_time(access.set_password(access.user))
        return [access.user] if await _becomes(partial(_is_changed, access)) else []

    async def revoke(self, operations: Sequence[str]) -> list[str]:
        """Take rights of these operations from the clients' user, EVERY_OPERATION for all.

        Return the operations that are refused now; [] if that is not so in time.
        """
        if EVERY_OPERATION in operations:
            operations = list(dict.fromkeys(rule.operation for rule in self._rules))
        rules = [rule for rule in self._rules if rule.operation in operations]
        self._is_revoked = True
        await self._in_time(self._access.revoke(self._access.user, rules))
        gone = await _becomes(partial(_have_gone, self._access, rules))
        return list(operations) if gone and rules else []

    async def allow(self) -> None:
        """Give all rights back."""
        access = self._access
        await self._in_time(access.allow(access.user, self._rules))
        if not await _becomes(partial(_are_there, access, self._rules)):
            raise ClusterError("no broker has the rules that were given back")
        self._is_revoked = False

    async def heal(self) -> None:
        """Let clients log in and do what they need; ClusterError if that fails again and again."""
        repairs: list[Callable[[], Awaitable[object]]] = []
        if self._is_revoked or self._is_in_doubt:
            repairs.append(self.allow)
        if self._is_in_doubt:
            await asyncio.sleep(LATE_S)
            repairs.append(self.change_password)
        for repair in repairs:
            for left in reversed(range(HEALING_TRIES)):
                try:
                    await repair()
                    break
                except ClusterError:
                    if not left:
                        raise
        self._is_in_doubt = False

    async def _in_time(self, change: Awaitable[None]) -> None:
        """Wait for a change; ClusterError if it is not acknowledged in time."""
        try:
            async with asyncio.timeout(CHANGE_S):
                await change
        except (TimeoutError, ClusterError) as error:
            self._is_in_doubt = True
            raise ClusterError(str(error) or f"not done in {CHANGE_S:g} s") from error

    @property
    def _access(self) -> AccessControl:
        access = self._environment.access
        if access is None:
            raise ClusterError("the cluster is not secured")
        return access


async def _becomes(holds: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it is so in time; a broker that does not answer is asked again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REACHES_S):
            while True:
                with contextlib.suppress(ClusterError):
                    if await holds():
                        return True
                await asyncio.sleep(POLL_S)
    return False


async def _is_changed(access: AccessControl) -> bool:
    if not await access.accepts(access.user):
        return False
    return await access.accepts(access.user, former=True) is False


async def _have_gone(access: AccessControl, rules: Sequence[Rule]) -> bool:
    found = await access.rules()
    return all((access.user, rule) not in found for rule in rules)


async def _are_there(access: AccessControl, rules: Sequence[Rule]) -> bool:
    found = await access.rules()
    return all((access.user, rule) in found for rule in rules)
