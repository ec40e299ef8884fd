"""The rows, by family of APIs: a request for each right that Apache Kafka's page names, and more.

More is what brokers check besides, and requests that name the same resource otherwise, such as by
a topic's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.peers.authorization.table import administration, data, groups, mixed, transactions

if TYPE_CHECKING:
    from tests.peers.authorization.rows import Row


def rows() -> list[Row]:
    """All, in order of the APIs' numbers; those of one API in the order of its family."""
    families = (data, groups, transactions, administration, mixed)
    return sorted((row for family in families for row in family.rows()), key=lambda row: row.api)
