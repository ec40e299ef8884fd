"""The views that brokers answer, by the path below the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console.brokers._configs import ConfigViews
from raftctl.console.brokers._groups import GroupViews
from raftctl.console.brokers._messages import MessageViews
from raftctl.console.brokers._transactions import TransactionViews

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from raftctl.console.brokers._brokers import Brokers
    from raftctl.console.http import Asked, Rights
    from raftctl.hanging_transactions import OpenTransaction
    from raftctl.plugins import BrokerClient

    View = Callable[[Asked], Awaitable[Mapping[str, Any]]]


class BrokerViews:
    """Views of configs, groups, transactions and records."""

    def __init__(self, client: BrokerClient, brokers: Brokers, wall_ms: Callable[[], int]) -> None:
        self.configs = ConfigViews(brokers)
        self.groups = GroupViews(brokers)
        self._transactions = TransactionViews(brokers, wall_ms)
        self._messages = MessageViews(client, brokers)

    @property
    def views(self) -> dict[str, View]:
        """Each view by its path."""
        return {
            "configs/{type}/{name}": self.configs.configs,
            "groups": self.groups.groups,
            "groups/{group}": self.groups.group,
            "transactions": self._transactions.transactions,
            "transactions/{id}": self._transactions.transaction,
            "messages": self._messages.messages,
        }

    async def hanging(self, rights: Rights) -> list[OpenTransaction]:
        """Return the transactions that hang, of what the requester may read."""
        return await self._transactions.hanging(rights)
