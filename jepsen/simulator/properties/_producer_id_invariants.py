"""Properties of producer ids in a whole cluster, one function each.

A broker is granted blocks of ids and gives each id out once, whatever becomes of controllers and
brokers: two producers with one id would take each other's records for their own repetitions. The
scheme is that of `jepsen.simulator.properties._invariants`. Source: KIP-730.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class BrokerLife(NamedTuple):
    """One life of a broker."""

    node_id: int
    life: int


@dataclass(frozen=True, slots=True)
class ProducerIdsView:
    """The blocks of ids that one life of a broker may still give out, in order."""

    owner: BrokerLife
    blocks: tuple[range, ...]


@dataclass(slots=True)
class _Granted:
    """A block as it was first seen, and what is left of it."""

    owner: BrokerLife
    whole: range
    left: range


@dataclass(slots=True)
class ProducerIdHistory:
    """Every block that any broker has ever had."""

    granted: list[_Granted] = field(default_factory=list)
    committed_end: int = 0
    """Ids below have been granted by the metadata of somebody's newest image."""


def no_producer_id_is_given_twice(history: ProducerIdHistory, view: ProducerIdsView) -> str | None:
    """Blocks never overlap, and an id that was given out never comes back."""
    for block in view.blocks:
        others = [one for one in history.granted if _overlap(one.whole, block)]
        if not others:
            history.granted.append(_Granted(view.owner, block, block))
            continue
        known, *more = others
        same = known.owner == view.owner and known.whole.stop == block.stop and not more
        if not same:
            return f"{view.owner} gives out {block}, {known.owner} had {known.whole}"
        if block.start < known.left.start:
            return f"{view.owner} gives out {block} again, {known.left} was left"
        known.left = block
    return None


def producer_ids_are_granted_by_the_log(
    history: ProducerIdHistory, view: ProducerIdsView
) -> str | None:
    """No broker gives out ids that may be granted again: a grant is committed first."""
    end = max((block.stop for block in view.blocks), default=0)
    if end <= history.committed_end:
        return None
    return f"{view.owner} has {view.blocks}, granted to {history.committed_end}"


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


PRODUCER_ID_PROPERTIES = (no_producer_id_is_given_twice, producer_ids_are_granted_by_the_log)
