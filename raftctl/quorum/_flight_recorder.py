"""What a driver remembers of its newest events and effects, to tell should the node fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raftctl.raft import events
from raftctl.raft.batch import without_payload
from raftctl.raft.messages import FetchResponse, FetchSnapshotResponse, with_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def without_records(
    happening: events.Event | events.Effect,
) -> events.Event | events.Effect:
    """What the story keeps: the records themselves would hold on to megabytes."""
    drop = _DROPS.get(type(happening))
    return happening if drop is None else drop(happening)


def _drop_batches(received: events.ResponseReceived) -> events.Event:
    match received.response:
        case FetchResponse(batches=batches) as response if batches:
            return events.ResponseReceived(received.source, with_batches(response, b""))
        case FetchSnapshotResponse() as piece:
            return events.ResponseReceived(received.source, replace(piece, data=b""))
    return received


_DROPS: Mapping[type, Callable[[Any], events.Event | events.Effect]] = {
    events.Proposed: lambda it: events.Proposed(b"", it.count, it.timestamp_ms),
    events.AppendToLog: lambda it: events.AppendToLog(without_payload(it.batch)),
    events.ResponseReceived: _drop_batches,
    events.SaveSnapshotChunk: lambda it: replace(it, data=b""),
}
"""Few happenings have records, and there are some for each message."""
