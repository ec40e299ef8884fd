"""Requests for very many things, taken apart into slices that are answered in turns.

Pure: what a request is taken apart into, and how the answers become one. A slice is a request like
any other, so a handler does not know of it. What changes between two slices shows in the later one,
as it would to a client that asks twice. A request that names something twice stays whole, since
only then can the response say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.protocol.versions import ApiKey

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from broker.protocol.codec import Message, Request

SLICE_ITEMS = 500
"""Topics, partitions, groups or resources of one slice: some milliseconds of work."""
WHOLE_ITEMS_MAX = 50_000
"""Elements of all arrays of a request that is not taken apart: a decision of the controller for
10,000 partitions, the most that it takes, names as many replicas.
"""


class _Arrays(NamedTuple):
    """Which array of a request is cut, and to which of the answer it leads."""

    asked: str
    answered: str
    inner_asked: str | None = None
    """In each element of `asked`, an array that is cut as well."""
    inner_answered: str | None = None


_SLICED = {
    ApiKey.LIST_OFFSETS: _Arrays("topics", "topics", "partitions", "partitions"),
    ApiKey.METADATA: _Arrays("topics", "topics"),
    ApiKey.FIND_COORDINATOR: _Arrays("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: _Arrays("groups", "groups"),
    ApiKey.DELETE_GROUPS: _Arrays("groups_names", "results"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Arrays("group_ids", "groups"),
    ApiKey.DELETE_RECORDS: _Arrays("topics", "topics", "partitions", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Arrays("topics", "topics", "partitions", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: _Arrays("resources", "results"),
    ApiKey.DESCRIBE_PRODUCERS: _Arrays("topics", "topics", "partition_indexes", "partitions"),
    ApiKey.DESCRIBE_TRANSACTIONS: _Arrays("transactional_ids", "transaction_states"),
}
_IDENTITY = ("name", "topic", "topic_id", "resource_type", "resource_name")
_INNER_IDENTITY = ("partition_index", "partition")
_UNBOUNDED = (ApiKey.FETCH,)
"""A follower names all partitions that it has of a leader."""


def elements(body: Any) -> int:
    """How many elements the arrays of a message have together."""
    if isinstance(body, dict):
        return sum(elements(value) for value in body.values() if isinstance(value, dict | list))
    if not body or not isinstance(body[0], dict | list):
        return len(body)
    return len(body) + sum(map(elements, body))


def may_be_handled(request: Request[Any]) -> bool:
    """Whether a request that is not taken apart is small enough for one turn."""
    return request.api_key in _UNBOUNDED or elements(request.body) <= WHOLE_ITEMS_MAX


def slices(request: Request[Any]) -> list[Request[Any]] | None:
    """The requests to handle in its place, in order; None: it is handled as it is."""
    arrays = _SLICED.get(ApiKey(request.api_key))
    items = None if arrays is None else request.body.get(arrays.asked)
    if arrays is None or not items or _names_twice(items, arrays):
        return None
    cut = list(_cut(items, arrays))
    if len(cut) < 2:
        return None
    more: dict[str, Any] = {arrays.asked: ()}
    if request.api_key == ApiKey.METADATA:
        # The controller would refuse so many at once, so they are not created in parts either.
        more["allow_auto_topic_creation"] = False
    return [replace(request, body={**request.body, **more, arrays.asked: one}) for one in cut]


def joined(request: Request[Any], answers: Sequence[Message]) -> Message:
    """One answer from those to the slices, in their order."""
    arrays = _SLICED[ApiKey(request.api_key)]
    found: list[dict[str, Any]] = []
    for answer in answers:
        for one in answer[arrays.answered]:
            inner = arrays.inner_answered
            if inner is not None and found and _identity(found[-1]) == _identity(one):
                found[-1] = {**found[-1], inner: [*found[-1][inner], *one[inner]]}
            else:
                found.append(one)
    return {**answers[-1], arrays.answered: found}


def _cut(items: Sequence[Any], arrays: _Arrays) -> Iterator[list[Any]]:
    """Slices of at most `SLICE_ITEMS`, the elements of inner arrays counted.

    Without inner arrays they are as long as each other: Metadata for a few topics comes out of a
    cache as bytes, which cannot be joined.
    """
    if arrays.inner_asked is None:
        count = -(-len(items) // SLICE_ITEMS)
        for number in range(count):
            yield [*items[len(items) * number // count : len(items) * (number + 1) // count]]
        return
    piece: list[Any] = []
    room = SLICE_ITEMS
    for item in items:
        for part in _parts(item, arrays.inner_asked):
            size = 1 + len(part[arrays.inner_asked] or ())
            if piece and size > room:
                yield piece
                piece, room = [], SLICE_ITEMS
            piece.append(part)
            room -= size
    yield piece


def _parts(item: dict[str, Any], inner: str) -> Iterator[dict[str, Any]]:
    values = item[inner] or ()
    if len(values) <= SLICE_ITEMS:
        yield item
        return
    for start in range(0, len(values), SLICE_ITEMS):
        yield {**item, inner: values[start : start + SLICE_ITEMS]}


def _names_twice(items: Sequence[Any], arrays: _Arrays) -> bool:
    if len({_identity(item) for item in items}) < len(items):
        return True
    inner = arrays.inner_asked
    if inner is None:
        return False
    inside = (item[inner] or () for item in items)
    return any(len(set(map(_inner_identity, values))) < len(values) for values in inside)


def _identity(item: Any) -> Hashable:
    if isinstance(item, str):
        return item
    return tuple(item.get(name) for name in _IDENTITY)


def _inner_identity(value: Any) -> Hashable:
    if isinstance(value, int):
        return value
    return tuple(value.get(name) for name in _INNER_IDENTITY)
