"""The cases: which rules there are for a principal, and whether a row has the case.

A rule is about the row's own operation, resource and principal unless the case says otherwise. The
cases of a wave are asked while the rules of that wave alone are in force: what is allowed to
everybody would change the cells of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.metadata.acls import Operation, Permission, ResourceType

if TYPE_CHECKING:
    from tests.peers.authorization.rows import Row

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIX, WILDCARD = "literal", "prefix", "*"
LONGER, LONGER_PREFIX, OTHER_TYPE = "longer name", "longer prefix", "other type"
OWN, EVERYBODY, SOMEBODY = "own", "*", "somebody"
SUPER = "super"
HERE, ELSEWHERE = "127.0.0.1", "10.9.8.7"
ANYWHERE = "*"
OWN_OPERATION = None
UNRELATED = "unrelated"
OTHERS, OPEN_CLUSTER, CLOSED_CLUSTER = 1, 2, 3
"""Waves after the first: rules for everybody, on topics and the like, and on the cluster."""
_DESCRIBES = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)


@dataclass(frozen=True, slots=True)
class Given:
    """A rule."""

    permission: Permission = ALLOW
    on: str = LITERAL
    operation: Operation | str | None = OWN_OPERATION
    principal: str = OWN
    host: str = ANYWHERE


@dataclass(frozen=True, slots=True)
class Case:
    """Rules, by a name."""

    name: str
    rules: Sequence[Given] = ()
    wave: int = 0
    only: Sequence[Operation] = ()
    """Of rows for these operations; none: for every one."""
    is_super: bool = False
    is_basic: bool = False
    """Whether rows that are one of many about a right have it, too."""

    def applies(self, row: Row) -> bool:
        """Whether a row has the case."""
        if row.operation is None or row.resource is None:
            return not self.rules
        if row.is_brief and not self.is_basic:
            return False
        if self.only and row.operation not in self.only:
            return False
        is_cluster = row.resource == ResourceType.CLUSTER
        # The only name of that type is kafka-cluster: other names are refused.
        if is_cluster and any(one.on in (WILDCARD, LONGER, LONGER_PREFIX) for one in self.rules):
            return False
        return self.wave == 0 or (self.wave == OTHERS) != is_cluster


def _implied() -> list[Case]:
    describe = [Operation.DESCRIBE]
    configs = [Operation.DESCRIBE_CONFIGS]
    found = [
        Case(f"{one.name.title()} allowed", (Given(operation=one),), only=describe)
        for one in _DESCRIBES
    ]
    alter = Given(operation=Operation.ALTER_CONFIGS)
    read, no_read = Given(operation=Operation.READ), Given(DENY, operation=Operation.READ)
    return [
        *found,
        Case("AlterConfigs allowed", (alter,), only=configs),
        Case("Read allowed, Describe denied", (read, Given(DENY)), only=describe),
        Case("Describe allowed, Read denied", (Given(), no_read), only=describe),
    ]


CASES: Sequence[Case] = (
    Case("no rule", is_basic=True),
    Case("allowed", (Given(),), is_basic=True),
    Case("all operations allowed", (Given(operation=Operation.ALL),)),
    Case("allowed by prefix", (Given(on=PREFIX),), is_basic=True),
    Case("allowed by wildcard", (Given(on=WILDCARD),)),
    Case("allowed from this host", (Given(host=HERE),)),
    Case("allowed from another host", (Given(host=ELSEWHERE),)),
    Case("allowed to somebody else", (Given(principal=SOMEBODY),)),
    Case("another operation allowed", (Given(operation=UNRELATED),)),
    Case("a longer name allowed", (Given(on=LONGER),)),
    Case("a longer prefix allowed", (Given(on=LONGER_PREFIX),)),
    Case("another type allowed", (Given(on=OTHER_TYPE),)),
    Case("denied", (Given(DENY),)),
    Case("allowed and denied", (Given(), Given(DENY)), is_basic=True),
    Case("allowed, all operations denied", (Given(), Given(DENY, operation=Operation.ALL))),
    Case("allowed, denied by prefix", (Given(), Given(DENY, PREFIX))),
    Case("allowed by prefix, denied", (Given(on=PREFIX), Given(DENY))),
    Case("allowed, denied by wildcard", (Given(), Given(DENY, WILDCARD))),
    Case("allowed, denied from this host", (Given(), Given(DENY, host=HERE))),
    Case("allowed, denied from another host", (Given(), Given(DENY, host=ELSEWHERE))),
    Case("allowed, another operation denied", (Given(), Given(DENY, operation=UNRELATED))),
    *_implied(),
    Case("super user, denied", (Given(DENY),), is_super=True, is_basic=True),
    Case("allowed to everybody", (Given(principal=EVERYBODY),), OTHERS),
    Case("allowed, denied to everybody", (Given(), Given(DENY, principal=EVERYBODY)), OTHERS),
    Case("allowed to everybody", (Given(principal=EVERYBODY),), OPEN_CLUSTER),
    Case(
        "allowed, denied to everybody", (Given(), Given(DENY, principal=EVERYBODY)), CLOSED_CLUSTER
    ),
)
