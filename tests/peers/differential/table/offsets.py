"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.protocol.versions import ApiKey
from tests.peers.differential.language import Ask, Body, Script, Step, few, prepare, since, topic
from tests.peers.differential.table.groups import alone, joined, left

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = ApiKey.OFFSET_COMMIT
FETCH = ApiKey.OFFSET_FETCH
DELETE = ApiKey.OFFSET_DELETE
BY_ID_SINCE = 10
UNKNOWN_ID = UUID(int=0xFE)


def commit(
    offset: int = 5, partition: int = 0, name: str = "$t", topics: Any = None, **more: Any
) -> Body:
    """The body of an OffsetCommit of one offset."""
    part = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "m",
    }
    one = {"name": name, "topic_id": f"{name}.id", "partitions": [part]}
    base = {
        "group_id": "$g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [one] if topics is None else topics,
    }
    return {**base, **more}


def fetch(
    *partitions: int, name: str = "$t", group: str = "$g", every: bool = False, **more: Any
) -> Body:
    """The body of an OffsetFetch of one group, for every version."""
    topics = [{"name": name, "topic_id": f"{name}.id", "partition_indexes": partitions}]
    asked = None if every else topics
    group_body = {"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}
    return {"group_id": group, "topics": asked, "groups": [{**group_body, **more}]}


def deleted(partition: int = 0, name: str = "$t", group: str = "$g") -> Body:
    """The body of an OffsetDelete of one partition."""
    parts = [{"partition_index": partition}]
    return {"group_id": group, "topics": [{"name": name, "partitions": parts}]}


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield _simple()
    yield from _wrong_topics()
    yield _of_a_member()
    yield _fetched()
    yield from _deleted()
    yield _nameless()


def _simple() -> Script:
    cases: dict[str, Body] = {
        "first": commit(),
        "next": commit(7),
        "back": commit(2),
        "zero": commit(0),
        "negative": commit(-1),
        "negative by two": commit(-2),
        "huge": commit(2**63 - 1),
        "other partition": commit(1, 1),
        "unknown partition": commit(1, 9),
        "negative partition": commit(1, -1),
        "retention": commit(retention_time_ms=3_600_000),
        "no topics": commit(topics=[]),
        "generation without a group": commit(group_id="$h", generation_id_or_member_epoch=3),
        "generation 0 without a group": commit(group_id="$h", generation_id_or_member_epoch=0),
        "generation -2 without a group": commit(group_id="$h", generation_id_or_member_epoch=-2),
        "member without a group": commit(group_id="$h", member_id="nobody"),
        "generation of an empty group": commit(generation_id_or_member_epoch=3),
        "member of an empty group": commit(member_id="nobody"),
        "instance of an empty group": commit(group_instance_id="nobody"),
    }
    part = {"partition_index": 0, "committed_offset": 9, "committed_leader_epoch": 3}
    here = {"name": "$t", "topic_id": "$t.id"}
    large = {**part, "committed_metadata": "x" * 4097}
    just = {**part, "committed_metadata": "x" * 4096}
    cases |= {
        "leader epoch": commit(topics=[{**here, "partitions": [part]}]),
        "no metadata": commit(
            topics=[{**here, "partitions": [{**part, "committed_metadata": None}]}]
        ),
        "metadata too large": commit(topics=[{**here, "partitions": [large]}]),
        "metadata just right": commit(topics=[{**here, "partitions": [just]}]),
        "twice": commit(topics=[{**here, "partitions": [part, {**part, "committed_offset": 11}]}]),
        "no partitions": commit(topics=[{**here, "partitions": []}]),
    }
    asks = [Ask(name, COMMIT, body) for name, body in cases.items()]
    return Script(
        "offset commit",
        [*topic("$t", 2), *asks, Ask("fetch", FETCH, fetch(0, 1), since(FETCH, 1))],
    )


def _wrong_topics() -> Iterator[Script]:
    steps: list[Step] = []
    part = {"partition_index": 0, "committed_offset": 9, "committed_leader_epoch": 3}
    for name in ("$unknown", "", "a b", "__consumer_offsets"):
        topics = [{"name": name, "topic_id": UNKNOWN_ID, "partitions": [part]}]
        steps.append(Ask(f"commit {name or 'empty'}", COMMIT, commit(topics=topics)))
        wanted = [{"name": name, "topic_id": UNKNOWN_ID, "partition_indexes": [0]}]
        group = {"group_id": "$g", "topics": wanted, "member_epoch": -1}
        body = {"group_id": "$g", "topics": wanted, "groups": [group]}
        steps.append(Ask(f"fetch {name or 'empty'}", FETCH, body))
    yield Script("offset unknown topics", steps)


def _of_a_member() -> Script:
    mine: dict[str, Any] = {"member_id": "$m", "generation_id_or_member_epoch": 1}
    cases: dict[str, Body] = {
        "of the member": commit(**mine),
        "of nobody": commit(),
        "of no member": commit(generation_id_or_member_epoch=1),
        "next generation": commit(**{**mine, "generation_id_or_member_epoch": 2}),
        "last generation": commit(**{**mine, "generation_id_or_member_epoch": 0}),
        "no generation": commit(member_id="$m"),
        "other member": commit(**{**mine, "member_id": "nobody"}),
        "instance": commit(**mine, group_instance_id="nobody"),
    }
    asks = [Ask(name, COMMIT, body) for name, body in cases.items()]
    meanwhile = [
        *joined(5, counts=False, group="$h"),
        Ask("before the sync", COMMIT, commit(**mine, group_id="$h"), few(COMMIT)),
        Ask("of nobody before the sync", COMMIT, commit(group_id="$h"), few(COMMIT)),
    ]
    return Script("offset commit in a group", [*topic("$t"), *alone(), *asks, *meanwhile])


def _fetched() -> Script:
    one = {"name": "$t", "topic_id": "$t.id", "partition_indexes": [0]}
    two = [
        {"group_id": "$g", "topics": [one], "member_epoch": -1},
        {"group_id": "$h", "topics": None, "member_epoch": -1},
    ]
    member: dict[str, Any] = {"member_id": "nobody", "member_epoch": 3}
    cases: dict[str, tuple[Body, int]] = {
        "one": (fetch(0), 1),
        "two partitions": (fetch(0, 1), 1),
        "unknown partition": (fetch(9), 1),
        "a partition twice": (fetch(0, 0), 1),
        "no partitions": (fetch(), 1),
        "everything": (fetch(every=True), 2),
        "unknown group": (fetch(0, group="$unknown"), 1),
        "everything of an unknown group": (fetch(every=True, group="$unknown"), 2),
        "stable": ({**fetch(0), "require_stable": True}, 7),
        "two groups": ({"groups": two}, 8),
        "a group twice": ({"groups": [two[0], two[0]]}, 8),
        "no groups": ({"groups": []}, 8),
        "of a member": (fetch(0, **member), 9),
        "of a member without epoch": (fetch(0, member_id="nobody"), 9),
        "of an epoch": (fetch(0, member_epoch=3), 9),
    }
    asks = [Ask(name, FETCH, body, since(FETCH, first)) for name, (body, first) in cases.items()]
    return Script("offset fetch", [*topic("$t", 2), prepare(COMMIT, 8, commit()), *asks])


def _deleted() -> Iterator[Script]:
    yield Script(
        "offset delete",
        [
            *topic("$t", 2),
            prepare(COMMIT, 8, commit()),
            Ask("unknown group", DELETE, deleted(group="$unknown")),
            Ask("unknown topic", DELETE, deleted(name="$unknown")),
            Ask("invalid topic", DELETE, deleted(name="a b")),
            Ask("unknown partition", DELETE, deleted(9)),
            Ask("no offset there", DELETE, deleted(1)),
            Ask("no topics", DELETE, {"group_id": "$g", "topics": []}),
            Ask("one", DELETE, deleted()),
            Ask("again", DELETE, deleted()),
            Ask("fetch", FETCH, fetch(0), [8]),
        ],
    )
    yield Script(
        "offset delete of members",
        [
            *topic("$t"),
            *alone(protocol_type="other"),
            Ask("other type", DELETE, deleted()),
            prepare(ApiKey.LEAVE_GROUP, 3, left("$m")),
            Ask("after", DELETE, deleted()),
            *alone("$n", group="$h"),
            Ask("subscribed, it seems", DELETE, deleted(group="$h")),
        ],
    )
    gone: Body = {"topics": [{"name": "$t"}], "timeout_ms": 10_000}
    yield Script(
        "offsets of a deleted topic",
        [
            *topic("$t"),
            prepare(COMMIT, 8, commit()),
            prepare(ApiKey.DELETE_TOPICS, 6, gone),
            Ask("fetch", FETCH, fetch(0), [8, 9]),
            Ask("fetch everything", FETCH, fetch(every=True), [8, 9]),
            Ask("describe", ApiKey.DESCRIBE_GROUPS, {"groups": ["$g"]}),
        ],
    )


def _nameless() -> Script:
    """All that is asked of the group without a name: its name has no prefix that keeps others out.

    Requests of several scripts would come in another order with each run, and find another group.
    """
    told = [
        Ask("fetch", FETCH, fetch(0, group=""), since(FETCH, 1)),
        Ask("describe", ApiKey.DESCRIBE_GROUPS, {"groups": [""]}),
        Ask("describe as consumers", ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [""]}),
    ]

    def again(when: str) -> list[Step]:
        return [dataclasses.replace(one, name=f"{one.name} {when}") for one in told]

    return Script(
        "group without a name",
        [
            *topic("$t"),
            *again("before"),
            Ask("delete before", ApiKey.DELETE_GROUPS, {"groups_names": [""]}),
            Ask("delete an offset before", DELETE, deleted(group="")),
            Ask("commit", COMMIT, commit(group_id="")),
            *again("with an offset"),
            Ask("delete an offset", DELETE, deleted(group="")),
            *again("without offsets"),
            Ask("commit again", COMMIT, commit(group_id=""), [8]),
            Ask("delete", ApiKey.DELETE_GROUPS, {"groups_names": [""]}),
            *again("after"),
        ],
    )
