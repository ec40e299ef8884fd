"""Groups of the classic protocol: coordinators, members, generations, what admins see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from tests.peers.differential.language import (
    Answer,
    Ask,
    Body,
    Pause,
    Script,
    Step,
    few,
    prepare,
    since,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIND = ApiKey.FIND_COORDINATOR
JOIN = ApiKey.JOIN_GROUP
SYNC = ApiKey.SYNC_GROUP
BEAT = ApiKey.HEARTBEAT
LEAVE = ApiKey.LEAVE_GROUP
DESCRIBE = ApiKey.DESCRIBE_GROUPS
LIST = ApiKey.LIST_GROUPS
DELETE = ApiKey.DELETE_GROUPS
SUBSCRIBED = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
"""What a consumer says of itself: version 0, one topic `t`."""
KNOWN_ID_SINCE = 4
"""From this version of JoinGroup on, a member asks for its id first."""


def join(member: str = "", group: str = "$g", **more: Any) -> Body:
    """The body of a JoinGroup."""
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 5000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIBED}],
        "reason": None,
        **more,
    }


def sync(generation: int = 1, member: str = "$m", group: str = "$g", **more: Any) -> Body:
    """The body of a SyncGroup of a leader that gives itself `all`."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": b"all"}],
        **more,
    }


def beat(generation: int = 1, member: str = "$m", **more: Any) -> Body:
    """The body of a Heartbeat."""
    return {"group_id": "$g", "generation_id": generation, "member_id": member, **more}


def left(*members: Body | str, group: str = "$g") -> Body:
    """The body of a LeaveGroup, for every version."""
    all_of_them = [{"member_id": one} if isinstance(one, str) else one for one in members]
    return {"group_id": group, "members": all_of_them, "member_id": all_of_them[0]["member_id"]}


def joined(version: int, name: str = "$m", counts: bool = True, **more: Any) -> list[Step]:
    """A member joins, twice where it is told its id first; keeps that by `name`."""
    keep = {name: ("member_id",)}
    first = Ask(f"join {name}", JOIN, join(**more), [version], keep, counts=counts)
    if version < KNOWN_ID_SINCE or more.get("group_instance_id"):
        return [first]
    again = Ask(f"join {name} known", JOIN, join(name, **more), [version], counts=counts)
    return [first, again]


def alone(name: str = "$m", **more: Any) -> list[Step]:
    """A group of one member that has its assignment; nothing of it is compared."""
    return [*joined(5, name, counts=False, **more), prepare(SYNC, 3, sync(member=name))]


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield _find()
    yield from _lives()
    yield from _wrong_joins()
    yield from _two()
    yield from _static()
    yield from _in_states()
    yield from _seen()


def _find() -> Script:
    def asked(*keys: str, kind: int = 0) -> Body:
        return {"key_type": kind, "coordinator_keys": keys, "key": keys[0] if keys else ""}

    cases = {
        "group": asked("$g"),
        "transaction": asked("$x", kind=1),
        "kind 2": asked("$g", kind=2),
        "kind 3": asked("$g", kind=3),
        "kind -1": asked("$g", kind=-1),
        "empty group": asked(""),
        "empty transaction": asked("", kind=1),
        "long": asked("x" * 300),
        "blanks": asked("a b"),
    }
    asks = [Ask(name, FIND, body) for name, body in cases.items()]
    several = {"two": asked("$g", "$h"), "twice": asked("$g", "$g"), "none": asked()}
    asks += [Ask(name, FIND, body, since(FIND, 4)) for name, body in several.items()]
    return Script("find coordinator", asks)


def _lives() -> Iterator[Script]:
    for version in range(10):
        rest = min(version, 5)
        yield Script(
            f"group life v{version}",
            [
                *joined(version),
                Ask("sync", SYNC, sync(), [rest]),
                Ask("sync again", SYNC, sync(), [rest]),
                Ask("heartbeat", BEAT, beat(), [min(version, 4)]),
                Ask("describe", DESCRIBE, {"groups": ["$g"]}, [min(version, 6)]),
                Ask("heartbeat of the next", BEAT, beat(2), [min(version, 4)]),
                Ask("heartbeat of the last", BEAT, beat(0), [min(version, 4)]),
                Ask("heartbeat of nobody", BEAT, beat(member="nobody"), [min(version, 4)]),
                Ask("heartbeat, no group", BEAT, beat(group_id="$h"), [min(version, 4)]),
                Ask("heartbeat, empty group", BEAT, beat(group_id=""), [min(version, 4)]),
                Ask("sync of the next", SYNC, sync(2), [rest]),
                Ask("sync of nobody", SYNC, sync(member="nobody"), [rest]),
                Ask("sync, no group", SYNC, sync(group="$h"), [rest]),
                Ask("sync, empty group", SYNC, sync(group=""), [rest]),
                Ask("sync, other protocol", SYNC, sync(protocol_name="other"), [rest]),
                Ask("sync, other type", SYNC, sync(protocol_type="other"), [rest]),
                Ask("sync, no type", SYNC, sync(protocol_type=None, protocol_name=None), [rest]),
                Ask("join again", JOIN, join("$m"), [version]),
                Ask("heartbeat after", BEAT, beat(2), [min(version, 4)]),
                Ask("sync without assignment", SYNC, sync(2, assignments=[]), [rest]),
                Ask("leave, no group", LEAVE, left("$m", group="$h"), [rest]),
                Ask("leave, empty group", LEAVE, left("$m", group=""), [rest]),
                Ask("leave of nobody", LEAVE, left("nobody"), [rest]),
                Ask("leave", LEAVE, left("$m"), [rest]),
                Ask("leave again", LEAVE, left("$m"), [rest]),
                Ask("heartbeat after leaving", BEAT, beat(2), [min(version, 4)]),
                Ask("describe after", DESCRIBE, {"groups": ["$g"]}, [min(version, 6)]),
                Ask("list after", LIST, versions=[min(version, 5)], mine=True),
                Ask("delete", DELETE, {"groups_names": ["$g"]}, [min(version, 2)]),
            ],
        )


def _wrong_joins() -> Iterator[Script]:
    none: list[Any] = []
    two = [{"name": "range", "metadata": b"a"}, {"name": "range", "metadata": b"b"}]
    cases: dict[str, Mapping[str, Any]] = {
        "empty group": {"group": ""},
        "timeout too short": {"session_timeout_ms": 999},
        "timeout shortest": {"session_timeout_ms": 1000},
        "timeout longest": {"session_timeout_ms": 1_800_000},
        "timeout too long": {"session_timeout_ms": 1_800_001},
        "timeout negative": {"session_timeout_ms": -1},
        "no rebalance timeout": {"rebalance_timeout_ms": 0},
        "negative rebalance timeout": {"rebalance_timeout_ms": -1},
        "unknown member": {"member": "nobody"},
        "no protocols": {"protocols": none},
        "no type": {"protocol_type": ""},
        "no type, no protocols": {"protocol_type": "", "protocols": none},
        "other type": {"protocol_type": "connect"},
        "no metadata": {"protocols": [{"name": "range", "metadata": b""}]},
        "garbage": {"protocols": [{"name": "range", "metadata": b"\xff\xff"}]},
        "reason": {"reason": "why not"},
        "long reason": {"reason": "x" * 300},
        "long group": {"group": "x" * 300},
    }
    for name, more in cases.items():
        asks = [
            Ask(name, JOIN, join(**{**more, "group": more.get("group", f"$g{version}")}), [version])
            for version in few(JOIN)
        ]
        yield Script(f"group join {name}", asks)
    # Apache Kafka never answers it.
    twice = Ask("join", JOIN, join(protocols=two), [0], patience_s=2)
    yield Script("group join same protocol twice", [twice])
    beside: dict[str, Mapping[str, Any]] = {
        "other type": {"protocol_type": "connect"},
        "no common protocol": {"protocols": [{"name": "other", "metadata": b""}]},
        "no protocols": {"protocols": none},
        "unknown member": {"member": "nobody"},
        "no group instance": {"member": "$m", "group_instance_id": "new"},
    }
    for name, more in beside.items():
        asks = [Ask("second", JOIN, join(**more), [version]) for version in few(JOIN)]
        yield Script(f"group join beside one: {name}", [*alone(), *asks])


def _two() -> Iterator[Script]:
    for version in (0, 3, 5, 7, 9):
        rest = min(version, 5)
        both = [
            {"member_id": "$m", "assignment": b"one"},
            {"member_id": "$n", "assignment": b"two"},
        ]
        known: list[Step] = [Ask("join $n", JOIN, join(), [version], {"$n": ("member_id",)})]
        second: list[Step] = [Ask("join second", JOIN, join("$n"), [version], on="n", later=True)]
        if version < KNOWN_ID_SINCE:
            known = []
            keep = {"$n": ("member_id",)}
            second = [Ask("join second", JOIN, join(), [version], keep, on="n", later=True)]
        yield Script(
            f"group of two v{version}",
            [
                *joined(version),
                Ask("sync", SYNC, sync(), [rest]),
                *known,
                *second,
                Pause(0.2),
                Ask("heartbeat meanwhile", BEAT, beat(), [min(version, 4)]),
                Ask("describe meanwhile", DESCRIBE, {"groups": ["$g"]}, [min(version, 6)]),
                Ask("sync meanwhile", SYNC, sync(), [rest]),
                Ask("join again", JOIN, join("$m"), [version]),
                Answer("join second"),
                Ask("heartbeat before sync", BEAT, beat(2), [min(version, 4)]),
                Ask("sync second", SYNC, sync(2, "$n", assignments=[]), [rest], on="n", later=True),
                Pause(0.1),
                Ask("describe before sync", DESCRIBE, {"groups": ["$g"]}, [min(version, 6)]),
                Ask("sync leader", SYNC, sync(2, assignments=both), [rest]),
                Answer("sync second"),
                Ask("describe", DESCRIBE, {"groups": ["$g"]}, [min(version, 6)]),
                Ask("leave", LEAVE, left("$m"), [rest]),
                Ask("heartbeat of the other", BEAT, beat(2, "$n"), [min(version, 4)]),
                Ask("join alone", JOIN, join("$n"), [version]),
                Ask("describe alone", DESCRIBE, {"groups": ["$g"]}, [min(version, 6)]),
                Ask("delete alive", DELETE, {"groups_names": ["$g"]}, [min(version, 2)]),
            ],
        )


def _static() -> Iterator[Script]:
    named: dict[str, Any] = {"group_instance_id": "one"}
    for version in (5, 7, 9):
        rest = min(version, 5)
        leave = {"member_id": "", "group_instance_id": "one"}
        wrong = {"member_id": "nobody", "group_instance_id": "one"}
        other = {"member_id": "", "group_instance_id": "other"}
        yield Script(
            f"group static v{version}",
            [
                *joined(version, **named),
                Ask("sync", SYNC, sync(**named), [rest]),
                Ask("heartbeat", BEAT, beat(**named), [4]),
                Ask("heartbeat without instance", BEAT, beat(), [4]),
                Ask("heartbeat of another id", BEAT, beat(member="nobody", **named), [4]),
                Ask("heartbeat of another instance", BEAT, beat(group_instance_id="other"), [4]),
                Ask("describe", DESCRIBE, {"groups": ["$g"]}, [3, 6]),
                Ask("comes back", JOIN, join(**named), [version], {"$n": ("member_id",)}),
                Ask("the old one", BEAT, beat(**named), [4]),
                Ask("the old one syncs", SYNC, sync(**named), [rest]),
                Ask("the old one joins", JOIN, join("$m", **named), [version]),
                Ask("the new one syncs", SYNC, sync(member="$n", **named), [rest]),
                Ask("the new one", BEAT, beat(member="$n", **named), [4]),
                Ask("leave of another id", LEAVE, left(wrong), [3, 5]),
                Ask("leave of another instance", LEAVE, left(other), [3, 5]),
                Ask("leave of both", LEAVE, left(other, leave), [3]),
                Ask("leave", LEAVE, left(leave), [5]),
                Ask("describe after", DESCRIBE, {"groups": ["$g"]}, [5]),
            ],
        )


def _in_states() -> Iterator[Script]:
    yield Script(
        "group pending member",
        [
            Ask("first", JOIN, join(), [9], {"$m": ("member_id",)}),
            Ask("describe", DESCRIBE, {"groups": ["$g"]}, [0, 6]),
            Ask("heartbeat", BEAT, beat(-1), [4]),
            Ask("heartbeat of 0", BEAT, beat(0), [4]),
            Ask("sync", SYNC, sync(-1), [5]),
            Ask("delete", DELETE, {"groups_names": ["$g"]}, [2]),
            Ask("leave", LEAVE, left("$m"), [5]),
            Ask("describe after", DESCRIBE, {"groups": ["$g"]}, [0, 6]),
        ],
    )
    yield Script(
        "group without a sync",
        [
            *joined(5, counts=False),
            Ask("describe", DESCRIBE, {"groups": ["$g"]}, [0, 6]),
            Ask("heartbeat", BEAT, beat(), [0, 4]),
            Ask("list", LIST, versions=[0, 5], mine=True),
            Ask("delete", DELETE, {"groups_names": ["$g"]}, [0, 2]),
            Ask("join again", JOIN, join("$m"), [5]),
            Ask("leave", LEAVE, left("$m"), [3]),
        ],
    )


def _seen() -> Iterator[Script]:
    two = [{"name": "range", "metadata": b"a"}, {"name": "roundrobin", "metadata": b"b"}]
    yield Script(
        "group seen",
        [
            Ask("unknown", DESCRIBE, {"groups": ["$unknown"]}),
            Ask("none", DESCRIBE, {"groups": []}),
            *alone(protocols=two),
            Ask("one", DESCRIBE, {"groups": ["$g"]}),
            Ask("operations", DESCRIBE, {"groups": ["$g"], "include_authorized_operations": True}),
            Ask("twice", DESCRIBE, {"groups": ["$g", "$g"]}),
            Ask("two", DESCRIBE, {"groups": ["$g", "$unknown"]}),
            Ask("list", LIST, mine=True),
            Ask("list stable", LIST, {"states_filter": ["Stable"]}, mine=True),
            Ask("list lower case", LIST, {"states_filter": ["stable"]}, mine=True),
            Ask("list empty ones", LIST, {"states_filter": ["Empty"]}, mine=True),
            Ask("list no state", LIST, {"states_filter": ["Nothing"]}, mine=True),
            Ask("list consumers", LIST, {"types_filter": ["consumer"]}, mine=True),
            Ask("list classic", LIST, {"types_filter": ["classic"]}, mine=True),
            Ask("list Classic", LIST, {"types_filter": ["Classic"]}, mine=True),
            Ask("list no type", LIST, {"types_filter": ["nothing"]}, mine=True),
            Ask("delete unknown", DELETE, {"groups_names": ["$unknown"]}),
            Ask("delete none", DELETE, {"groups_names": []}),
            Ask("delete alive", DELETE, {"groups_names": ["$g"]}),
            Ask("delete two", DELETE, {"groups_names": ["$g", "$unknown"]}),
            prepare(LEAVE, 3, left("$m")),
            Ask("describe empty", DESCRIBE, {"groups": ["$g"]}),
            Ask("list now", LIST, mine=True),
        ],
    )
    for version in (0, 1, 2):
        asks = [
            Ask("delete", DELETE, {"groups_names": ["$g"]}, [version]),
            Ask("delete again", DELETE, {"groups_names": ["$g"]}, [version]),
            Ask("describe", DESCRIBE, {"groups": ["$g"]}, [5, 6]),
            Ask("list", LIST, versions=[4], mine=True),
        ]
        yield Script(f"group deleted v{version}", [*alone(), prepare(LEAVE, 3, left("$m")), *asks])
    members = [
        {"member_id": "nobody", "group_instance_id": None, "reason": "r"},
        {"member_id": "$m", "group_instance_id": None, "reason": "x" * 300},
    ]
    several = {"group_id": "$g", "members": members}
    yield Script(
        "group leave several",
        [
            *alone(),
            Ask("leave", LEAVE, several, [5]),
            Ask("none", LEAVE, {"group_id": "$g", "members": []}, [3, 5]),
        ],
    )
