"""Users of a secured cluster and their rules: what a test asks of it, however it is run."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.environments._entrance import Entrance


class Security(enum.StrEnum):
    """What clients speak; by all but the first they log in, and rules hold."""

    PLAINTEXT = "PLAINTEXT"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Rule(NamedTuple):
    """What a user is allowed, by the names of KIP-140 in lower case."""

    resource: str
    """`topic`, `group`, `transactional_id` or `cluster`."""
    name: str
    operation: str
    """`read`, `write`, `create`, ..."""
    prefixed: bool = False
    """Whether `name` is the beginning of names."""


class AccessControl(Protocol):
    """Changes of users, passwords and rules, as an administrator makes them.

    A change returns when it is acknowledged, and raises ClusterError if it is not in time. It has
    reached a broker once `rules` and `accepts` show it there.
    """

    user: str
    """The user of the workload's clients."""
    operator: str
    """The super user who administers."""

    def entrance(self, user: str) -> Entrance:
        """Return where a user's clients begin; they log in with the newest password."""

    async def set_password(self, user: str) -> None:
        """Give a user a new password; the user is made if there is none of the name."""

    async def allow(self, user: str, rules: Sequence[Rule]) -> None:
        """Add rules; those that are there already stay."""

    async def revoke(self, user: str, rules: Sequence[Rule]) -> None:
        """Remove rules; no effect where one is not there."""

    async def rules(self, broker_id: int | None = None) -> frozenset[tuple[str, Rule]]:
        """Return the users with their rules, as one broker has them now; None: any broker."""

    async def accepts(self, user: str, *, former: bool = False) -> bool | None:
        """Return whether a new connection may log in; None if no broker answers.

        It tries the user's newest password, or the `former` one, with one broker after the other.
        """
