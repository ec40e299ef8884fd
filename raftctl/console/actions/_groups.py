"""Actions on groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.console.actions._plan import LIST_MAX, PARTITION_MAX, Plan, Results, counted
from raftctl.console.brokers import EARLIEST, GROUP_KEY, LATEST, Partition, check, no_group
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.integers import LONG_MAX
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.offset_resets import Ends, Reset, reset_offset

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from raftctl.console.actions._plan import Acting
    from raftctl.http_json import Fields

_NO_MEMBER = -1
"""The generation with which an administrator commits, for a group without members."""


def reset_offsets(acting: Acting, fields: Fields) -> Plan:
    """Set the offsets of a group without members, in all partitions of a topic or some."""
    group, topic = fields.text("group"), fields.text("topic")
    numbers = fields.integers_or_none("partitions", PARTITION_MAX, LIST_MAX)
    text = fields.text("to")
    where = _where(text)
    validate_only = fields.flag("validate_only")

    async def carry_out() -> str:
        coordinator = await _coordinator(acting, group)
        found = await acting.views.groups.described(acting.requester, group, coordinator)
        if found["members"]:
            why = f"group {group} has members: stop them, then reset"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, why)
        known = acting.image.topics.by_name(topic)
        wanted = numbers if numbers is not None or known is None else sorted(known.partitions)
        new = await _new_offsets(acting, where, [Partition(topic, one) for one in wanted or ()])
        if not new or known is None:
            why = f"there is no topic {topic:.249} that you may describe"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        if not validate_only:
            await _commit(acting, group, coordinator, known.topic_id, new)
        done = "could be" if validate_only else "is" if len(new) == 1 else "are"
        offsets = ", ".join(f"{one.partition}: {offset}" for one, offset in list(new.items())[:20])
        more = ", …" if len(new) > 20 else ""
        count = counted(len(new), "offset")
        return f"{count} of group {group} in {topic} {done} set to {text} ({offsets}{more})"

    return Plan(f"{group} {topic}", carry_out)


def _where(text: str) -> Reset:
    if text in ("earliest", "latest"):
        return Reset(text)
    number = text.removeprefix("@")
    if number.isascii() and number.isdecimal() and len(number) < 20 and int(number) <= LONG_MAX:
        return Reset("time" if text.startswith("@") else "offset", int(number))
    raise BadFieldError("to", "write earliest, latest, an offset, or @ and milliseconds of time")


async def _coordinator(acting: Acting, group: str) -> int:
    acting.rights.require(Operation.DESCRIBE, ResourceType.GROUP, group)
    found = await acting.brokers.coordinator(acting.requester, GROUP_KEY, group)
    if found is None:
        raise no_group(group)
    return found


async def _new_offsets(
    acting: Acting, where: Reset, partitions: list[Partition]
) -> dict[Partition, int]:
    """Return the new offset of each partition. KafkaError if one of them cannot be found."""
    brokers, requester = acting.brokers, acting.requester
    leaders = brokers.leaders(partitions)

    async def offsets(timestamp: int) -> dict[Partition, int]:
        found = await brokers.offsets(requester, leaders, timestamp)
        return {one: offset for some in found.values() for one, offset in some.items()}

    starts, ends = await offsets(EARLIEST), await offsets(LATEST)
    times = await offsets(where.number) if where.kind == "time" else {}
    new = {}
    for one in partitions:
        if one not in starts or one not in ends:
            why = f"{one} is not there, has no leader, or is not for you to describe"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, why)
        new[one] = reset_offset(where, Ends(starts[one], ends[one]), None, times.get(one))
    return new


async def _commit(
    acting: Acting,
    group: str,
    coordinator: int,
    topic_id: UUID,
    new: Mapping[Partition, int],
) -> None:
    name = next(iter(new)).topic
    partitions = [
        {
            "partition_index": one.partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for one, offset in new.items()
    ]
    body: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": _NO_MEMBER,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "topic_id": topic_id, "partitions": partitions}],
    }
    answer = await acting.brokers.ask(acting.requester, "OFFSET_COMMIT", body, coordinator)
    results = Results()
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            results.add(str(Partition(name, one["partition_index"])), one["error_code"], None)
    results.check()


def delete_group(acting: Acting, fields: Fields) -> Plan:
    """Delete a group without members, and its offsets."""
    group = fields.text("group")

    async def carry_out() -> str:
        coordinator = await _coordinator(acting, group)
        body = {"groups_names": [group]}
        answer = await acting.brokers.ask(acting.requester, "DELETE_GROUPS", body, coordinator)
        [found] = answer["results"]
        if found["error_code"] == ErrorCode.NON_EMPTY_GROUP:
            why = f"group {group} has members: stop them, then delete it"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, why)
        check(found["error_code"])
        return f"group {group} is deleted, with its offsets"

    return Plan(group, carry_out)


def remove_member(acting: Acting, fields: Fields) -> Plan:
    """Remove a member from a group; others get its partitions. It may join again."""
    group = fields.text("group")
    instance = fields.text_or_none("instance")
    member = fields.text("member", "" if instance is not None else None)

    async def carry_out() -> str:
        coordinator = await _coordinator(acting, group)
        leaving = {
            # One with an instance id is removed by that: its member id may be another by now.
            "member_id": "" if instance is not None else member,
            "group_instance_id": instance,
            "reason": "removed in the console",
        }
        body = {"group_id": group, "members": [leaving]}
        answer = await acting.brokers.ask(acting.requester, "LEAVE_GROUP", body, coordinator)
        check(answer["error_code"])
        for one in answer["members"]:
            check(one["error_code"])
        return f"member {instance or member} is removed from group {group}"

    return Plan(f"{group} {instance or member}", carry_out)
