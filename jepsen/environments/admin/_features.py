"""Levels of a cluster's features go down and up again, as around a rolling upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.environments.admin._requests import asked, update_features

if TYPE_CHECKING:
    import random

    from aiokafka.admin import AIOKafkaAdminClient

    from jepsen.environments._base import Environment

PATIENCE_S = 10.0


class Features:
    """The levels of features, in the ranges that the environment tells."""

    def __init__(self, environment: Environment, rng: random.Random) -> None:
        self._environment = environment
        self._random = rng

    async def lower(self, feature: str, level: int | None = None) -> list[Any]:
        """Lower to that level, else to a random one: [feature, level]; [] if that failed."""
        low, high = self._environment.features[feature]
        level = self._random.randrange(low, high) if level is None else level
        return [feature, level] if await self._done({feature: level}, lower=True) else []

    async def raise_all(self) -> dict[str, int]:
        """Every feature gets its highest level; those levels, or nothing if nobody says so."""
        levels = {name: high for name, (_, high) in self._environment.features.items()}
        return levels if await self._done(levels, lower=False) else {}

    async def _done(self, levels: dict[str, int], *, lower: bool) -> bool:
        possible = True

        async def ask(admin: AIOKafkaAdminClient) -> bool:
            nonlocal possible
            possible = await update_features(admin, levels, lower=lower)
            return True

        heard = await asked(self._environment.bootstrap_servers, ask, PATIENCE_S)
        return heard and possible
