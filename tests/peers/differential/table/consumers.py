"""Groups of KIP-848: heartbeats, epochs, assignments, and what is told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.protocol.versions import ApiKey
from tests.peers.differential.language import Ask, Body, Built, Script, Step, few, prepare, topic
from tests.peers.differential.table.groups import alone, beat, join, left, sync
from tests.peers.differential.table.offsets import commit, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
DESCRIBE = ApiKey.CONSUMER_GROUP_DESCRIBE
JOINED = {"$epoch": ("member_epoch",)}
A, B, C = (str(UUID(int=number)) for number in (0xA, 0xB, 0xC))


def e(shift: int = 0) -> Built:
    """The epoch that the first member was given, and so many more: groups need not begin at 1."""
    return Built(lambda kept: kept["$epoch"] + shift)


def heartbeat(epoch: int | Built, member: str = A, **more: Any) -> Body:
    """The body of a heartbeat that says nothing new."""
    return {
        "group_id": "$g",
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **more,
    }


def joining(member: str = A, **more: Any) -> Body:
    """The body of the first heartbeat of a member."""
    whole = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["$t"],
        "topic_partitions": [],
    }
    return heartbeat(0, member, **{**whole, **more})


def owning(*partitions: int) -> list[Body]:
    """What a member says that it has."""
    return [{"topic_id": "$t.id", "partitions": partitions}] if partitions else []


def scripts() -> Iterator[Script]:
    """All of this family."""
    for version in (0, 1):
        yield _alone(version)
        yield _two(version)
        yield _static(version)
    yield from _wrong()
    yield _told()
    yield _offsets()
    yield from _mixed()


def _alone(version: int) -> Script:
    at = [version]
    return Script(
        f"consumer alone v{version}",
        [
            *topic("$t", 3),
            Ask("join", BEAT, joining(), at, JOINED),
            Ask("join again", BEAT, joining(), at),
            Ask("beat", BEAT, heartbeat(e()), at),
            Ask("owns all", BEAT, heartbeat(e(), topic_partitions=owning(0, 1, 2)), at),
            Ask("owns less", BEAT, heartbeat(e(), topic_partitions=owning(0)), at),
            Ask("owns nothing", BEAT, heartbeat(e(), topic_partitions=[]), at),
            Ask("epoch ahead", BEAT, heartbeat(e(4)), at),
            Ask("epoch behind", BEAT, heartbeat(e(-1), rebalance_timeout_ms=1000), at),
            Ask("describe", DESCRIBE, {"group_ids": ["$g"]}),
            Ask("other topics", BEAT, heartbeat(e(1), subscribed_topic_names=["$unknown"]), at),
            Ask("other topics said", BEAT, heartbeat(e(), subscribed_topic_names=["$unknown"]), at),
            Ask("beat then", BEAT, heartbeat(e()), at),
            Ask("assignor", BEAT, heartbeat(e(1), server_assignor="range"), at),
            Ask("described", DESCRIBE, {"group_ids": ["$g"]}),
            Ask("leaves", BEAT, heartbeat(-1), at),
            Ask("leaves again", BEAT, heartbeat(-1), at),
            Ask("beat after", BEAT, heartbeat(e(2)), at),
            Ask("described after", DESCRIBE, {"group_ids": ["$g"]}),
            Ask("joins anew", BEAT, joining(), at),
        ],
    )


def _two(version: int) -> Script:
    at = [version]
    return Script(
        f"consumer two v{version}",
        [
            *topic("$t", 4),
            Ask("first", BEAT, joining(server_assignor="range"), at, JOINED),
            Ask("first owns", BEAT, heartbeat(e(), topic_partitions=owning(0, 1, 2, 3)), at),
            Ask("second", BEAT, joining(B, server_assignor="range"), at),
            Ask("second waits", BEAT, heartbeat(e(1), B), at),
            Ask("first is told", BEAT, heartbeat(e()), at),
            Ask("describe", DESCRIBE, {"group_ids": ["$g"]}, few(DESCRIBE)),
            Ask("first gives", BEAT, heartbeat(e(), topic_partitions=owning(0, 1)), at),
            Ask("first confirms", BEAT, heartbeat(e(1)), at),
            Ask("second gets", BEAT, heartbeat(e(1), B), at),
            Ask("second owns", BEAT, heartbeat(e(1), B, topic_partitions=owning(2, 3)), at),
            Ask("described", DESCRIBE, {"group_ids": ["$g"]}, few(DESCRIBE)),
            Ask("third", BEAT, joining(C, subscribed_topic_names=["$u"]), at),
            Ask("first leaves", BEAT, heartbeat(-1), at),
            Ask("second is told", BEAT, heartbeat(e(1), B), at),
            Ask("second again", BEAT, heartbeat(e(3), B, topic_partitions=owning(2, 3)), at),
            Ask("offsets", ApiKey.DESCRIBE_GROUPS, {"groups": ["$g"]}, [5, 6]),
            Ask("list", ApiKey.LIST_GROUPS, mine=True),
            Ask("delete", ApiKey.DELETE_GROUPS, {"groups_names": ["$g"]}, [2]),
        ],
    )


def _static(version: int) -> Script:
    at, one = [version], {"instance_id": "one"}
    return Script(
        f"consumer static v{version}",
        [
            *topic("$t", 2),
            Ask("join", BEAT, joining(**one), at, JOINED),
            Ask("beat", BEAT, heartbeat(e(), **one), at),
            Ask("beat without instance", BEAT, heartbeat(e()), at),
            Ask("beat of another instance", BEAT, heartbeat(e(), instance_id="two"), at),
            Ask("another while it is there", BEAT, joining(B, **one), at),
            Ask("leaves for a while", BEAT, heartbeat(-2, **one), at),
            Ask("describe", DESCRIBE, {"group_ids": ["$g"]}),
            Ask("another in its place", BEAT, joining(B, **one), at),
            Ask("the first", BEAT, heartbeat(e(), **one), at),
            Ask("the other", BEAT, heartbeat(e(), B, **one), at),
            Ask("leaves for a while unnamed", BEAT, heartbeat(-2, B), at),
            Ask("leaves for good", BEAT, heartbeat(-1, B, **one), at),
            Ask("described", DESCRIBE, {"group_ids": ["$g"]}),
        ],
    )


def _wrong() -> Iterator[Script]:
    cases: dict[str, Body] = {
        "empty group": joining(group_id=""),
        "empty member": joining(""),
        "blank group": joining(group_id=" "),
        "member of words": joining("somebody"),
        "long member": joining("x" * 100),
        "no topics": joining(subscribed_topic_names=None),
        "empty topics": joining(subscribed_topic_names=[]),
        "unknown topics": joining(subscribed_topic_names=["$unknown"]),
        "a topic twice": joining(subscribed_topic_names=["$t", "$t"]),
        "invalid topic": joining(subscribed_topic_names=["a b"]),
        "no rebalance timeout": joining(rebalance_timeout_ms=-1),
        "rebalance timeout 0": joining(rebalance_timeout_ms=0),
        "no owned partitions": joining(topic_partitions=None),
        "owned partitions": joining(topic_partitions=owning(0)),
        "unknown assignor": joining(server_assignor="nothing"),
        "empty assignor": joining(server_assignor=""),
        "uniform": joining(server_assignor="uniform"),
        "empty instance": joining(instance_id=""),
        "empty rack": joining(rack_id=""),
        "rack": joining(rack_id="here"),
        "epoch -2": heartbeat(-2),
        "epoch -2 with instance": heartbeat(-2, instance_id="one"),
        "epoch -3": heartbeat(-3),
        "epoch 7 of nobody": heartbeat(7),
        "leaves first": heartbeat(-1),
        "empty member beats": heartbeat(1, ""),
    }
    for name, body in cases.items():
        asks = [Ask(name, BEAT, body, [version]) for version in (0, 1)]
        yield Script(f"consumer {name}", [*topic("$t"), *asks])
    patterns = {
        "pattern": joining(subscribed_topic_regex=".*-t", subscribed_topic_names=None),
        "pattern and names": joining(subscribed_topic_regex="nothing"),
        "empty pattern": joining(subscribed_topic_regex="", subscribed_topic_names=None),
        "wrong pattern": joining(subscribed_topic_regex="([", subscribed_topic_names=None),
    }
    for name, body in patterns.items():
        if name == "pattern":
            continue
        yield Script(f"consumer {name}", [*topic("$t"), Ask(name, BEAT, body, [1])])


def _told() -> Script:
    return Script(
        "consumer groups told",
        [
            *topic("$t", 2),
            Ask("unknown", DESCRIBE, {"group_ids": ["$unknown"]}),
            Ask("none", DESCRIBE, {"group_ids": []}),
            *alone(group="$classic"),
            Ask("classic", DESCRIBE, {"group_ids": ["$classic"]}),
            prepare(BEAT, 1, joining(instance_id="one", rack_id="here")),
            Ask("one", DESCRIBE, {"group_ids": ["$g"]}),
            Ask("twice", DESCRIBE, {"group_ids": ["$g", "$g"]}),
            Ask("two", DESCRIBE, {"group_ids": ["$g", "$unknown"]}),
            Ask(
                "operations", DESCRIBE, {"group_ids": ["$g"], "include_authorized_operations": True}
            ),
            Ask("as classic", ApiKey.DESCRIBE_GROUPS, {"groups": ["$g"]}),
            Ask("list", ApiKey.LIST_GROUPS, {"types_filter": ["consumer"]}, mine=True),
            Ask("delete", ApiKey.DELETE_GROUPS, {"groups_names": ["$g"]}),
            prepare(BEAT, 1, heartbeat(-1, instance_id="one")),
            Ask("empty", DESCRIBE, {"group_ids": ["$g"]}),
            Ask("list empty", ApiKey.LIST_GROUPS, {"states_filter": ["Empty"]}, mine=True),
            Ask("deleted", ApiKey.DELETE_GROUPS, {"groups_names": ["$g"]}, [2]),
            Ask("after", DESCRIBE, {"group_ids": ["$g"]}),
        ],
    )


def _offsets() -> Script:
    api = ApiKey.OFFSET_COMMIT

    def of(member: str, epoch: Any) -> Body:
        return commit(member_id=member, generation_id_or_member_epoch=epoch)

    one: dict[str, Any] = {"member_id": A, "member_epoch": e()}
    gone = {"group_id": "$g", "topics": [{"name": "$t", "partitions": [{"partition_index": 0}]}]}
    return Script(
        "consumer offsets",
        [
            *topic("$t", 2),
            prepare(BEAT, 1, joining(), **JOINED),
            Ask("of the member", api, of(A, e())),
            Ask("of nobody", api, of("", -1)),
            Ask("of another", api, of(B, e())),
            Ask("stale", api, of(A, e(-1))),
            Ask("ahead", api, of(A, e(2))),
            Ask("member without epoch", api, of(A, -1)),
            Ask("fetch", ApiKey.OFFSET_FETCH, fetch(0, **one), [9, 10]),
            Ask(
                "fetch of another",
                ApiKey.OFFSET_FETCH,
                fetch(0, member_id=B, member_epoch=e()),
                [9, 10],
            ),
            Ask(
                "fetch stale",
                ApiKey.OFFSET_FETCH,
                fetch(0, **{**one, "member_epoch": e(-1)}),
                [9, 10],
            ),
            Ask(
                "fetch ahead",
                ApiKey.OFFSET_FETCH,
                fetch(0, **{**one, "member_epoch": e(1)}),
                [9, 10],
            ),
            Ask("fetch of nobody", ApiKey.OFFSET_FETCH, fetch(0)),
            Ask("delete", ApiKey.OFFSET_DELETE, gone),
        ],
    )


def _mixed() -> Iterator[Script]:
    yield Script(
        "consumer beside classic",
        [
            *topic("$t", 2),
            *alone(),
            Ask("joins", BEAT, joining(), [0, 1]),
            Ask("classic beat", ApiKey.HEARTBEAT, beat(), [4]),
        ],
    )
    steps: list[Step] = [*topic("$t", 2), prepare(BEAT, 1, joining(), **JOINED)]
    yield Script(
        "classic beside consumer",
        [
            *steps,
            Ask("joins", ApiKey.JOIN_GROUP, join(), few(ApiKey.JOIN_GROUP)),
            Ask("beats", ApiKey.HEARTBEAT, beat(member=A), few(ApiKey.HEARTBEAT)),
            Ask("syncs", ApiKey.SYNC_GROUP, sync(member=A), few(ApiKey.SYNC_GROUP)),
            Ask("leaves", ApiKey.LEAVE_GROUP, left("nobody"), few(ApiKey.LEAVE_GROUP)),
            Ask("leaves as the member", ApiKey.LEAVE_GROUP, left(A), [5]),
            Ask("described", DESCRIBE, {"group_ids": ["$g"]}),
        ],
    )
