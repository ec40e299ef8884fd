"""Finds the fields in which two answers differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEYS = (
    *("name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "key", "user"),
    *("resource_name", "feature", "api_key", "partition_index", "partition", "partition_id"),
    *("index", "member_id", "log_dir", "producer_id", "node_id", "broker_id", "mechanism"),
    *("base_offset", "batch_index", "principal", "first_offset", "replica_id", "entity_type"),
)
"""Fields that tell one element of a list from another."""


class Difference(NamedTuple):
    """One field of one answer. An absent one is `<absent>`."""

    request: str
    field: str
    """The names down to it, with dots; of lists all elements are alike."""
    kafka: Any
    ours: Any


def differences(kafka: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Difference]:
    """Of all answers, by request."""
    for request in sorted(kafka.keys() | ours.keys()):
        for field, theirs, mine in _fields(
            "", kafka.get(request, "<absent>"), ours.get(request, "<absent>")
        ):
            yield Difference(request, field, theirs, mine)


def _fields(path: str, kafka: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if kafka == ours:
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            inner = f"{path}.{key}" if path else key
            yield from _fields(inner, kafka.get(key, "<absent>"), ours.get(key, "<absent>"))
    elif isinstance(kafka, list) and isinstance(ours, list) and _are_dicts(kafka + ours):
        yield from _elements(path, kafka, ours)
    else:
        yield path, kafka, ours


def _elements(path: str, kafka: list[Any], ours: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    theirs, mine = _by_identity(kafka), _by_identity(ours)
    for identity in [*theirs, *(one for one in mine if one not in theirs)]:
        yield from _fields(path, theirs.get(identity, "<absent>"), mine.get(identity, "<absent>"))


def _are_dicts(elements: list[Any]) -> bool:
    return all(isinstance(one, dict) for one in elements)


def _by_identity(elements: list[Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for one in elements:
        name = next(((key, one[key]) for key in _KEYS if isinstance(one.get(key), str | int)), None)
        number = sum(1 for known, _ in found if known == name)
        found[name, number] = one
    return found
