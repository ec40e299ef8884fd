"""Groups, their members and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, ResourceType
from tests.peers.authorization.rows import SHARED, Prepared, Row
from tests.peers.authorization.table.data import committed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.peers.differential.language import Body

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that knows topics by name."""
ONE_GROUP = 7
"""The last version of OffsetFetch for one group."""
ONE_KEY = 3
"""The last version of FindCoordinator for one key."""
SUBSCRIBED = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
"""What a consumer sends of itself: version 0, one topic `t`."""


def rows() -> Iterator[Row]:
    """All of this family."""
    yield from _offsets()
    yield from _coordinators()
    yield from _classic()
    yield from _consumers()
    yield from _administration()


def _offsets() -> Iterator[Row]:
    for how, version in {"": -1, "by name": BY_NAME}.items():
        yield from _offsets_of_both(how, version)
    asked: Body = {"group_id": "$g", "topics": None}
    yield Row(
        ApiKey.OFFSET_FETCH,
        DESCRIBE,
        TOPIC,
        {"groups": [{"group_id": "$g", "member_epoch": -1, "topics": None}]},
        "all topics",
        BY_NAME,
        also=[(DESCRIBE, GROUP, "$g")],
        topics=["$r"],
        prepared=[committed("$g", "$r")],
        among=("groups.topics.name", "$r"),
    )
    yield Row(
        ApiKey.OFFSET_FETCH,
        DESCRIBE,
        TOPIC,
        asked,
        "all topics of one group",
        ONE_GROUP,
        also=[(DESCRIBE, GROUP, "$g")],
        topics=["$r"],
        prepared=[committed("$g", "$r")],
        among=("topics.name", "$r"),
    )
    asked = {"group_id": "$r", "topics": [{"name": SHARED, "partition_indexes": [0]}]}
    also = [(DESCRIBE, TOPIC, SHARED)]
    yield Row(ApiKey.OFFSET_FETCH, DESCRIBE, GROUP, asked, "of one group", ONE_GROUP, also)
    asked = {"group_id": "$g", "topics": [{"name": "$r", "partition_indexes": [0]}]}
    also = [(DESCRIBE, GROUP, "$g")]
    yield Row(ApiKey.OFFSET_FETCH, DESCRIBE, TOPIC, asked, "of one group", ONE_GROUP, also)
    api = ApiKey.OFFSET_DELETE
    yield Row(api, DELETE, GROUP, _deleted("$r", "$t"), also=[(READ, TOPIC, "$t")])
    yield Row(
        api,
        READ,
        TOPIC,
        _deleted("$g", "$r"),
        also=[(DELETE, GROUP, "$g")],
        prepared=[committed("$g", SHARED)],
    )


def _deleted(group: str, topic: str) -> Body:
    return {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}


def _offsets_of_both(how: str, version: int) -> Iterator[Row]:
    api = ApiKey.OFFSET_COMMIT
    also = [(READ, TOPIC, SHARED)]
    yield Row(api, READ, GROUP, _committing("$r", SHARED), how, version, also)
    also = [(READ, GROUP, "$g")]
    yield Row(api, READ, TOPIC, _committing("$g", "$r"), how, version, also, ["$r"])
    api = ApiKey.OFFSET_FETCH
    also = [(DESCRIBE, TOPIC, SHARED)]
    yield Row(api, DESCRIBE, GROUP, _fetched("$r", SHARED), how, version, also)
    also = [(DESCRIBE, GROUP, "$g")]
    yield Row(api, DESCRIBE, TOPIC, _fetched("$g", "$r"), how, version, also, ["$r"])


def _committing(group: str, topic: str) -> Body:
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    topics = [{"name": topic, "topic_id": f"{topic}.id", "partitions": [offset]}]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}


def _fetched(group: str, topic: str) -> Body:
    topics = [{"name": topic, "topic_id": f"{topic}.id", "partition_indexes": [0]}]
    return {"groups": [{"group_id": group, "member_epoch": -1, "topics": topics}]}


def _coordinators() -> Iterator[Row]:
    api = ApiKey.FIND_COORDINATOR
    for kind, resource in enumerate((GROUP, ResourceType.TRANSACTIONAL_ID)):
        body = {"key_type": kind, "coordinator_keys": ["$r"]}
        yield Row(api, DESCRIBE, resource, body)
        yield Row(api, DESCRIBE, resource, {"key_type": kind, "key": "$r"}, "one key", ONE_KEY)


def _classic() -> Iterator[Row]:
    session = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    kind = {"protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": SUBSCRIBED}]
    yield Row(
        ApiKey.JOIN_GROUP,
        READ,
        GROUP,
        {"group_id": "$r", **session, **kind, "protocols": protocols},
    )
    member = {"group_id": "$r", "generation_id": 1, "member_id": "m"}
    yield Row(ApiKey.HEARTBEAT, READ, GROUP, member)
    yield Row(ApiKey.LEAVE_GROUP, READ, GROUP, {"group_id": "$r", "members": [{"member_id": "m"}]})
    yield Row(ApiKey.SYNC_GROUP, READ, GROUP, {**member, **kind, "protocol_name": "range"})


def heartbeat(group: str, epoch: int, topics: Any = None) -> Body:
    """The body of a ConsumerGroupHeartbeat."""
    member = {"group_id": group, "member_id": "m", "member_epoch": epoch}
    assigned = {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
    return {**member, **assigned, "subscribed_topic_names": topics}


def joined(group: str, topic: str) -> Prepared:
    """A first heartbeat, which makes the group, again until the member has partitions."""
    api = ApiKey.CONSUMER_GROUP_HEARTBEAT
    return Prepared(api, 1, heartbeat(group, 0, [topic]), ready=_is_assigned)


def _is_assigned(answer: Mapping[str, Any]) -> bool:
    """Whether the member has partitions, so that the group knows their topics."""
    assignment = answer["assignment"]
    return assignment is not None and bool(assignment["topic_partitions"])


def _consumers() -> Iterator[Row]:
    api = ApiKey.CONSUMER_GROUP_HEARTBEAT
    yield Row(api, READ, GROUP, heartbeat("$r", 5))
    yield Row(
        api,
        DESCRIBE,
        TOPIC,
        heartbeat("$g", 5, ["$r"]),
        "subscribed topics",
        also=[(READ, GROUP, "$g")],
    )
    api = ApiKey.CONSUMER_GROUP_DESCRIBE
    yield Row(api, DESCRIBE, GROUP, {"group_ids": ["$r"]})
    yield Row(
        api,
        DESCRIBE,
        TOPIC,
        {"group_ids": ["$g"]},
        "subscribed topics",
        also=[(DESCRIBE, GROUP, "$g")],
        topics=["$r"],
        prepared=[joined("$g", "$r")],
    )


def _administration() -> Iterator[Row]:
    yield Row(ApiKey.DESCRIBE_GROUPS, DESCRIBE, GROUP, {"groups": ["$r"]})
    yield Row(
        ApiKey.LIST_GROUPS,
        DESCRIBE,
        CLUSTER,
        prepared=[committed("$g", SHARED)],
        among=("groups.group_id", "$g"),
    )
    yield Row(
        ApiKey.LIST_GROUPS,
        DESCRIBE,
        GROUP,
        prepared=[committed("$r", SHARED)],
        among=("groups.group_id", "$r"),
    )
    yield Row(ApiKey.DELETE_GROUPS, DELETE, GROUP, {"groups_names": ["$r"]})
