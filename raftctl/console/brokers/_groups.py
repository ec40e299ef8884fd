"""Groups: the list, with members and lag of a window, and one group whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.console.brokers._assignment import assigned
from raftctl.console.brokers._brokers import GROUP_KEY, Partition, check, error_code
from raftctl.console.brokers._recent import Recent
from raftctl.console.http import Table
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from raftctl.console.brokers._brokers import Brokers
    from raftctl.console.http import Asked
    from raftctl.security import Requester

    Document = Mapping[str, Any]

OFFSETS_MAX = 5_000
"""Committed offsets of one group that are shown."""
MEMBERS_MAX = 1_000
_CONSUMER_TYPE = "consumer"


class Group(NamedTuple):
    """A group as its coordinator lists it."""

    name: str
    type: str
    """`classic`, `consumer`, in lower case."""
    state: str
    protocol: str
    coordinator: int


class Listed(NamedTuple):
    """All groups that a requester sees."""

    groups: list[Group]
    """In order of their names."""
    unanswered: list[dict[str, Any]]


class GroupViews:
    """Answers about groups."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._recent: Recent[Listed] = Recent()

    async def groups(self, asked: Asked) -> dict[str, Any]:
        """Return the table of groups; members and lag are those of its window."""
        requester = asked.requester
        listed = await self._recent.get(requester, lambda: self._list(requester))
        table: Table[Group] = Table(
            _row,
            {
                "group": lambda one: one.name,
                "type": lambda one: one.type,
                "state": lambda one: one.state,
                "protocol": lambda one: one.protocol,
                "coordinator": lambda one: one.coordinator,
            },
            name=lambda one: one.name,
        )
        answer = await table.answer(listed.groups, asked.fields, self._brokers.image.offset)
        shown = {row["group"]: row for row in answer["rows"]}
        members, committed = await asyncio.gather(
            self._members(requester, shown.values()), self._committed(requester, shown.values())
        )
        partitions = {one for offsets in committed.values() for one in offsets}
        ends = await self._brokers.ends(requester, partitions)
        rows = [
            {**row, "members": members.get(name), "lag": _total_lag(committed.get(name), ends)}
            for name, row in shown.items()
        ]
        return {**answer, "rows": rows, "unanswered": listed.unanswered}

    async def group(self, asked: Asked) -> dict[str, Any]:
        """Return one group: members with their partitions, committed offsets with their lag."""
        asked.fields.end()
        requester, name = asked.requester, asked.named["group"]
        asked.rights.require(Operation.DESCRIBE, ResourceType.GROUP, name)
        coordinator = await self._brokers.coordinator(requester, GROUP_KEY, name)
        if coordinator is None:
            raise no_group(name)
        described = await self.described(requester, name, coordinator)
        found = await self.offsets(requester, name, coordinator)
        shown = sorted(found)[:OFFSETS_MAX]
        ends = await self._brokers.ends(requester, shown)
        return {
            "group": name,
            "coordinator": coordinator,
            **described,
            "offsets": [_offset(one, found[one], ends.get(one)) for one in shown],
            "offset_count": len(found),
        }

    async def described(self, requester: Requester, name: str, coordinator: int) -> dict[str, Any]:
        """Return type, state, epoch and members of a group. KafkaError: GROUP_ID_NOT_FOUND."""
        body = {"group_ids": [name], "include_authorized_operations": False}
        answer = await self._brokers.ask(requester, "CONSUMER_GROUP_DESCRIBE", body, coordinator)
        [found] = answer["groups"]
        if found["error_code"] != ErrorCode.GROUP_ID_NOT_FOUND:
            check(found["error_code"], found["error_message"])
            return _consumer_group(found)
        body = {"groups": [name], "include_authorized_operations": False}
        answer = await self._brokers.ask(requester, "DESCRIBE_GROUPS", body, coordinator)
        [found] = answer["groups"]
        if found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND:
            raise no_group(name)
        check(found["error_code"], found["error_message"])
        return _classic_group(found)

    async def offsets(
        self, requester: Requester, name: str, coordinator: int
    ) -> dict[Partition, Document]:
        """Return what a group has committed, of topics that the requester may describe."""
        answer = await self._brokers.ask(requester, "OFFSET_FETCH", _all_of([name]), coordinator)
        [group] = answer["groups"]
        check(group["error_code"])
        return dict(self._partitions(group))

    # --- the list ---------------------------------------------------------------------------------

    async def _list(self, requester: Requester) -> Listed:
        body: Document = {"states_filter": (), "types_filter": ()}
        found = await self._brokers.ask_all(requester, "LIST_GROUPS", body)
        groups: list[Group] = []
        failures, slices = dict(found.failures), Slices()
        for broker_id, answer in found.answers.items():
            if answer["error_code"]:
                failures[broker_id] = KafkaError(error_code(answer["error_code"]))
            for one in answer["groups"]:
                protocol, state = one["protocol_type"], one["group_state"]
                kind = one["group_type"].lower()
                groups.append(Group(one["group_id"], kind, state, protocol, broker_id))
                await slices.rest()
        groups.sort(key=lambda one: one.name)
        return Listed(groups, found._replace(failures=failures).unanswered)

    async def _members(self, requester: Requester, rows: Iterable[Document]) -> dict[str, int]:
        """Return the number of members of each group of some rows; unknown ones are left out."""
        consumer, classic = {}, {}
        for coordinator, some in _by_coordinator(rows).items():
            kinds = {row["group"]: row["type"] == _CONSUMER_TYPE for row in some}
            newer = [name for name, is_newer in kinds.items() if is_newer]
            older = [name for name, is_newer in kinds.items() if not is_newer]
            more = {"include_authorized_operations": False}
            if newer:
                consumer[coordinator] = {"group_ids": newer, **more}
            if older:
                classic[coordinator] = {"groups": older, **more}
        answered = await asyncio.gather(
            self._brokers.ask_each(requester, "CONSUMER_GROUP_DESCRIBE", consumer),
            self._brokers.ask_each(requester, "DESCRIBE_GROUPS", classic),
        )
        return {
            group["group_id"]: len(group["members"])
            for found in answered
            for answer in found.answers.values()
            for group in answer["groups"]
            if not group["error_code"]
        }

    async def _committed(
        self, requester: Requester, rows: Iterable[Document]
    ) -> dict[str, dict[Partition, int]]:
        """Return the offsets that each group of some rows has committed."""
        bodies = {
            coordinator: _all_of([row["group"] for row in some])
            for coordinator, some in _by_coordinator(rows).items()
        }
        found = await self._brokers.ask_each(requester, "OFFSET_FETCH", bodies)
        return {
            group["group_id"]: {
                one: offset["committed_offset"] for one, offset in self._partitions(group)
            }
            for answer in found.answers.values()
            for group in answer["groups"]
            if not group["error_code"]
        }

    def _partitions(self, group: Document) -> Iterable[tuple[Partition, Document]]:
        topics = self._brokers.image.topics
        for topic in group["topics"]:
            known = topics.by_id(topic["topic_id"]) if topic.get("topic_id") else None
            name = topic.get("name") if known is None else known.name
            if not name:
                continue  # deleted meanwhile
            for one in topic["partitions"]:
                if not one["error_code"] and one["committed_offset"] >= 0:
                    yield Partition(name, one["partition_index"]), one


def no_group(name: str) -> KafkaError:
    """Return the error for a group that is not there."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name:.100}")


def _row(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
    }


def _all_of(names: Sequence[str]) -> dict[str, Any]:
    asked = [
        {"group_id": one, "member_id": None, "member_epoch": -1, "topics": None} for one in names
    ]
    return {"groups": asked, "require_stable": False}


def _by_coordinator(rows: Iterable[Document]) -> dict[int, list[Document]]:
    found: dict[int, list[Document]] = {}
    for row in rows:
        found.setdefault(row["coordinator"], []).append(row)
    return found


def _total_lag(
    committed: Mapping[Partition, int] | None, ends: Mapping[Partition, int]
) -> int | None:
    """Return by how many records a group is behind; None if it is not known of all partitions."""
    if committed is None or any(one not in ends for one in committed):
        return None
    return sum(max(0, ends[one] - offset) for one, offset in committed.items())


def _offset(one: Partition, committed: Document, end: int | None) -> dict[str, Any]:
    offset = committed["committed_offset"]
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": offset,
        "end": end,
        "lag": None if end is None else max(0, end - offset),
        "metadata": committed["metadata"] or None,
    }


def _consumer_group(found: Document) -> dict[str, Any]:
    members = [
        {
            "id": one["member_id"],
            "instance": one["instance_id"],
            "client_id": one["client_id"],
            "host": one["client_host"],
            "assignment": [
                {"topic": topic["topic_name"], "partitions": topic["partitions"]}
                for topic in one["assignment"]["topic_partitions"]
            ],
        }
        for one in found["members"][:MEMBERS_MAX]
    ]
    return {
        "type": _CONSUMER_TYPE,
        "state": found["group_state"],
        "protocol": found["assignor_name"],
        "epoch": found["group_epoch"],
        "members": members,
        "member_count": len(found["members"]),
    }


def _classic_group(found: Document) -> dict[str, Any]:
    is_consumer = found["protocol_type"] == _CONSUMER_TYPE
    members = [
        {
            "id": one["member_id"],
            "instance": one["group_instance_id"],
            "client_id": one["client_id"],
            "host": one["client_host"],
            "assignment": assigned(bytes(one["member_assignment"])) if is_consumer else [],
        }
        for one in found["members"][:MEMBERS_MAX]
    ]
    return {
        "type": "classic",
        "state": found["group_state"],
        "protocol": found["protocol_data"] or found["protocol_type"],
        "epoch": None,
        "members": members,
        "member_count": len(found["members"]),
    }
