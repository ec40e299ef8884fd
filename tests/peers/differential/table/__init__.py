"""The table: a module for each family of APIs, each with `scripts()`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tests.peers.differential.table import (
    admin,
    consumers,
    groups,
    offsets,
    produce,
    protocol,
    reading,
    topics,
    transactions,
)

if TYPE_CHECKING:
    from tests.peers.differential.language import Script

FAMILIES = (produce, reading, groups, offsets, consumers, topics, admin, transactions, protocol)


def scripts(like: str = "*") -> list[Script]:
    """All scripts whose name is like the pattern, in order."""
    return [one for family in FAMILIES for one in family.scripts() if fnmatchcase(one.name, like)]
