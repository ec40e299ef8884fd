"""A group checks its own state, and the record that it is read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.groups.classic._group import Group

if TYPE_CHECKING:
    from broker.groups._records import GroupMemberValue, GroupValue


def _member(member_id: str, instance_id: str | None = None) -> GroupMemberValue:
    return {
        "member_id": member_id,
        "group_instance_id": instance_id,
        "client_id": "c",
        "client_host": "",
        "rebalance_timeout": 1_000,
        "session_timeout": 1_000,
        "subscription": b"",
        "assignment": b"",
    }


RECORD: GroupValue = {
    "protocol_type": "consumer",
    "generation": 4,
    "protocol": "range",
    "leader": "a",
    "current_state_timestamp": 1,
    "members": [_member("a", "i"), _member("b")],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"leader": "c"},
        {"generation": -1},
        {"protocol": None},
        {"protocol_type": ""},
        {"members": [_member("a"), _member("a")]},
        {"members": [_member("a", "i"), _member("b", "i")]},
    ],
)
def test_a_group_record_that_contradicts_itself_is_refused(changes: Any) -> None:
    Group.of_record("g", RECORD).invariants()
    with pytest.raises(ValueError, match="contradict"):
        Group.of_record("g", {**RECORD, **changes})


def test_a_static_member_that_leaves_gives_up_its_place() -> None:
    group = Group.of_record("g", RECORD)
    group.remove("a")
    group.invariants()
    assert (group.leader, group.statics) == ("b", {})
