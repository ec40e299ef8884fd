"""What a row of the table is: a request, and the right that it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.protocol.versions import SERVED, ApiKey
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from tests.peers.differential.language import Body, resolved

if TYPE_CHECKING:
    from tests.peers.authorization.documented import Documented

Right = tuple[Operation, ResourceType, str]
"""An operation on a resource; the name is as in bodies of requests."""
RESOURCE = "$r"
SHARED = "$shared"
"""A topic that all cells have, where a request needs one that the right is not about."""
USERS = "User:"
"""The type of principals, with which names of users begin as resources."""


class Prepared(NamedTuple):
    """A request of the super user before."""

    api: ApiKey
    version: int
    body: Body
    keep: Mapping[str, Sequence[str | int]] = {}
    """Names for what stands at these places of the answer."""
    ready: Callable[[Mapping[str, Any]], bool] = bool
    """Whether the answer is the last: until then it is asked again."""


@dataclass(frozen=True, slots=True)
class Row:
    """A request whose answer depends on one right.

    In bodies, as in `tests.peers.differential.language`, `$t` is a name that only the cell has;
    `$r` is that of the resource that the right is about, and `$r.id` the id of a topic that is made
    before. `$shared` is one topic for all cells.
    """

    api: ApiKey
    operation: Operation | None
    """None: every principal may ask."""
    resource: ResourceType | None
    body: Body = field(default_factory=dict)
    how: str = ""
    """Tells rows of the same right apart."""
    version: int = -1
    """-1: the newest that we serve."""
    also: Sequence[Right] = ()
    """Rights that the principal has in every case but those of super users."""
    topics: Sequence[str] = ()
    """Topics that exist, one partition each."""
    prepared: Sequence[Prepared] = ()
    among: tuple[str, str] | None = None
    """(path of names in the answer, name): what is not among them was left out."""
    codes: str = ""
    """The one field whose error decides; empty: every one."""
    operations: str = ""
    """The field with the operations that the principal may do, of a request that asks for them."""
    name: str = RESOURCE
    """Of the resource, where it is not a name that is free to choose."""

    @property
    def asked_version(self) -> int:
        """The version of the request."""
        return SERVED[self.api].stop - 1 if self.version < 0 else self.version

    @property
    def key(self) -> str:
        """Unique: API, right, what tells it apart."""
        return " ".join(filter(None, (self.api.name, *self.right, self.how)))

    @property
    def right(self) -> tuple[str, str]:
        """Operation and resource type, as Apache Kafka's page writes them; empty for none."""
        return written(self.operation), written(self.resource)

    @property
    def is_brief(self) -> bool:
        """Whether it has some cases only: another row is about the same right."""
        return bool(self.how)

    def literal(self, prefix: str, kept: Mapping[str, Any]) -> str:
        """The name that a literal rule of a cell has."""
        if self.resource == ResourceType.CLUSTER:
            return CLUSTER_NAME
        name = str(resolved(self.name, prefix, kept))
        return f"{USERS}{name}" if self.resource == ResourceType.USER else name

    def is_of(self, row: Documented) -> bool:
        """Whether it is a request for that row of Apache Kafka's page."""
        return (self.api, *self.right) == (row.api, row.operation, row.resource)


def written(value: Operation | ResourceType | None) -> str:
    """The name of an operation or a type of resources: IdempotentWrite, TransactionalId."""
    return "" if value is None else value.name.title().replace("_", "")


def part(**values: Any) -> Mapping[str, Any]:
    """The fields of partition 0, whatever the message calls its number."""
    return {"partition_index": 0, **values}
