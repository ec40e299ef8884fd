"""Parts of responses to members of both kinds of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.groups.requests import Caller
    from broker.protocol.messages import consumer as wire
    from raftctl.errors import ErrorCode


def join_error(member_id: str, error: ErrorCode) -> wire.JoinGroupResponse:
    """Return the message of a JoinGroup that failed."""
    return {
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def sync_error(error: ErrorCode) -> wire.SyncGroupResponse:
    """Return the message of a SyncGroup that failed."""
    return {"error_code": error, "protocol_type": None, "protocol_name": None, "assignment": b""}


def left_message(caller: Caller, error: ErrorCode) -> wire.MemberResponse:
    """Return LeaveGroup's response for one member."""
    return {
        "member_id": caller.member_id,
        "group_instance_id": caller.instance_id,
        "error_code": error,
    }
