"""What a driver remembers of its newest events and effects, to tell should the node fail."""

from __future__ import annotations

from dataclasses import replace

from raftctl.raft import events
from raftctl.raft.messages import FetchResponse, FetchSnapshotResponse


def without_records(
    happening: events.Event | events.Effect,
) -> events.Event | events.Effect:
    """What the story keeps: the records themselves would hold on to megabytes."""
    match happening:
        case events.Proposed():
            return replace(happening, payload=b"")
        case events.AppendToLog(batch):
            return events.AppendToLog(replace(batch, payload=b""))
        case events.ResponseReceived(source, FetchResponse() as response):
            return events.ResponseReceived(source, replace(response, batches=b""))
        case events.ResponseReceived(source, FetchSnapshotResponse() as piece):
            return events.ResponseReceived(source, replace(piece, data=b""))
        case events.SaveSnapshotChunk():
            return replace(happening, data=b"")
    return happening
