"""What groups need of the configuration."""

from __future__ import annotations

from typing import Protocol


class GroupLimits(Protocol):
    """What the configuration says of groups."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int:
        """How long the first member waits for others."""

    @property
    def group_min_session_timeout_ms(self) -> int:
        """The shortest session."""

    @property
    def group_max_session_timeout_ms(self) -> int:
        """The longest session."""

    @property
    def group_max_size(self) -> int:
        """The members that a group may have."""
