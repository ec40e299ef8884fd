"""How far groups are behind, computed by their coordinator from time to time."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.background import Background
from broker.metrics import OTHERS
from raftctl.metrics import Family, Sample, gauge, single
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

    from broker.types import TopicPartition

    Ends = Callable[[Collection[TopicPartition], float], Awaitable[Mapping[TopicPartition, int]]]

OFFSETS_MAX = 50_000
"""Committed offsets of one round: some tenths of a second of work, in slices."""
_PREFIX = "kafka_consumergroup"
CURRENT = gauge(
    f"{_PREFIX}_current_offset",
    "Offset that the group has committed in the partition.",
    *("consumergroup", "topic", "partition"),
)
LAG = gauge(
    f"{_PREFIX}_lag",
    "Records between the group's offset and the end of the partition.",
    *("consumergroup", "topic", "partition"),
)
CURRENT_SUM = gauge(
    f"{_PREFIX}_current_offset_sum",
    "Sum of the group's offsets in all partitions of the topic.",
    *("consumergroup", "topic"),
)
LAG_SUM = gauge(
    f"{_PREFIX}_lag_sum", "Sum of the group's lag in the topic.", *("consumergroup", "topic")
)
MEMBERS = gauge(f"{_PREFIX}_members", "Members of the group.", "consumergroup")
GROUPS = gauge("raftctl_consumergroups", "Groups that this broker coordinates and has looked at.")
FOLDED = gauge(
    "raftctl_consumergroups_without_series", "Groups that are counted as (other), of the least lag."
)
NOT_LOOKED_AT = gauge(
    "raftctl_consumergroups_not_looked_at",
    "Groups of the last round that had no turn, as too many offsets are committed.",
)
_OWN_SERIES = 3
"""Those about all groups."""
_OTHERS_SERIES = 5


class Groups(Protocol):
    """The groups of one partition of `__consumer_offsets` (`broker.groups`)."""

    def group_ids(self) -> list[str]:
        """Return the ids of all groups."""

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return the group's offsets."""

    def member_count(self, group_id: str) -> int:
        """Return how many members the group has."""


class _Position(NamedTuple):
    partition: TopicPartition
    offset: int
    lag: int | None
    """None while the end of the partition is not known."""


@dataclass(slots=True)
class _Group:
    """A group as the last round has found it."""

    group_id: str
    members: int
    positions: list[_Position] = field(default_factory=list)
    offset_sums: Counter[str] = field(default_factory=Counter)
    lag_sums: Counter[str] = field(default_factory=Counter)
    """By topic."""

    @property
    def lag(self) -> int:
        """Of all topics."""
        return self.lag_sums.total()

    @property
    def series(self) -> int:
        """How many it takes to show it whole."""
        return 1 + 2 * len(self.positions) + 2 * len(self.offset_sums)

    def add(self, partition: TopicPartition, offset: int, end: int | None) -> None:
        """Take a committed offset; a consumer may know of an end that is newer."""
        lag = None if end is None else max(0, end - offset)
        self.positions.append(_Position(partition, offset, lag))
        self.offset_sums[partition.topic] += offset
        self.lag_sums[partition.topic] += lag or 0


class GroupLag:
    """The groups of one broker; `raftctl.metrics.Details`."""

    series_min = _OWN_SERIES + _OTHERS_SERIES

    def __init__(
        self,
        groups: Callable[[], Iterable[Groups]],
        is_here: Callable[[str], bool],
        exists: Callable[[TopicPartition], bool],
        ends: Ends,
        interval_s: float,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`is_here` says whether this broker coordinates a group, `exists` whether a partition
        does; `ends` finds ends in some seconds, of some perhaps none.
        """
        self._groups = groups
        self._is_here = is_here
        self._exists = exists
        self._ends = ends
        self._interval_s = interval_s
        self._background = Background(fail)
        self._found: list[_Group] = []
        """Of the last round, those of the greatest lag first."""
        self._shown: list[_Group] = []
        """Those that are coordinated here still."""
        self._left_out = 0

    def start(self) -> None:
        """Look again and again from now on."""
        self._background.start(self._run())

    async def stop(self) -> None:
        """End what `start` began."""
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.refresh()

    async def refresh(self) -> None:
        """Look at all groups, some in each turn of the event loop."""
        slices = Slices()
        found: list[tuple[_Group, dict[TopicPartition, int]]] = []
        room, left_out = OFFSETS_MAX, 0
        for groups in self._groups():
            for group_id in groups.group_ids():
                committed = groups.committed(group_id) if room > 0 else {}
                if room <= 0:
                    left_out += 1
                else:
                    offsets = {
                        one: offset for one, offset in committed.items() if self._exists(one)
                    }
                    found.append((_Group(group_id, groups.member_count(group_id)), offsets))
                    room -= 1 + len(committed)
                await slices.rest()
        wanted = {partition for _, offsets in found for partition in offsets}
        ends = await self._ends(wanted, self._interval_s) if wanted else {}
        for group, offsets in found:
            for partition, offset in sorted(offsets.items()):
                group.add(partition, offset, ends.get(partition))
            await slices.rest()
        self._found = sorted((group for group, _ in found), key=_order)
        self._left_out = left_out

    async def prepare(self, slices: Slices) -> None:
        """See `raftctl.metrics.Details`."""
        shown = []
        for group in self._found:
            if self._is_here(group.group_id):
                shown.append(group)
            await slices.rest()
        self._shown = shown

    def collect(self, room: int) -> Iterator[Family]:
        """See `raftctl.metrics.Details`."""
        room -= self.series_min
        own: list[_Group] = []
        rest: list[_Group] = []
        for group in self._shown:
            # After the first that does not fit none does, so that it is those of the greatest lag.
            if rest or group.series > room:
                rest.append(group)
            else:
                own.append(group)
                room -= group.series
        yield from _families(own, rest)
        yield single(GROUPS, len(self._shown))
        yield single(FOLDED, len(rest))
        yield single(NOT_LOOKED_AT, self._left_out)


def _order(group: _Group) -> tuple[int, str]:
    return -group.lag, group.group_id


def _families(own: list[_Group], rest: list[_Group]) -> Iterator[Family]:
    """The series of some groups, and the sums of the rest, if there is one."""
    positions = [(group.group_id, one) for group in own for one in group.positions]
    sums = {
        CURRENT_SUM: [(group.group_id, group.offset_sums) for group in own],
        LAG_SUM: [(group.group_id, group.lag_sums) for group in own],
    }
    offset = sum(group.offset_sums.total() for group in rest)
    lag = sum(group.lag for group in rest)
    yield Family(
        CURRENT,
        [Sample((name, *_labels(one.partition)), one.offset) for name, one in positions]
        + _others(rest, offset, "", ""),
    )
    yield Family(
        LAG,
        [
            Sample((name, *_labels(one.partition)), one.lag)
            for name, one in positions
            if one.lag is not None
        ]
        + _others(rest, lag, "", ""),
    )
    for metric, total in ((CURRENT_SUM, offset), (LAG_SUM, lag)):
        yield Family(
            metric,
            [
                Sample((name, topic), value)
                for name, by_topic in sums[metric]
                for topic, value in sorted(by_topic.items())
            ]
            + _others(rest, total, ""),
        )
    yield Family(
        MEMBERS,
        [Sample((group.group_id,), group.members) for group in own]
        + _others(rest, sum(group.members for group in rest)),
    )


def _labels(partition: TopicPartition) -> tuple[str, str]:
    return partition.topic, str(partition.partition)


def _others(rest: list[_Group], value: int, *labels: str) -> list[Sample]:
    return [Sample((OTHERS, *labels), value)] if rest else []
