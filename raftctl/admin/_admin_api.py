"""The cluster's status as JSON over HTTP, on the controllers' listener. Read-only."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from aiohttp import web

from raftctl.ids import uuid_text
from raftctl.metadata.codec import RECORD_CODEC
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from raftctl.admin._partition_counts import PartitionCounts
    from raftctl.loader import MetadataLoader, StateHashes
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.quorum import RaftDriver
    from raftctl.raft import QuorumStatus, ReplicaStatus
    from raftctl.raft.messages import Voter

METADATA_PATH = "/api/v1/metadata"
PROVENANCE_HEADER = "X-Raftctl-Provenance"
"""Offset, epoch and timestamp of the image that follows."""
STEP_RECORDS = 1_000


class AdminApi:
    """Answers for one node."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        driver: RaftDriver,
        loader: MetadataLoader,
        hashes: StateHashes,
        counts: PartitionCounts,
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._driver = driver
        self._loader = loader
        self._hashes = hashes
        self._counts = counts

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for the node's application."""
        return [
            web.get("/api/v1/status", self._status),
            web.get(METADATA_PATH, self._metadata),
        ]

    async def _status(self, request: web.Request) -> web.Response:
        quorum = quorum_json(self._driver.status())
        cluster = cluster_json(self._loader.image, self._counts)
        identity = {"node_id": self._node_id, "cluster_id": self._cluster_id}
        disk = {"metadata_log_fsyncs": self._driver.log.fsyncs}
        state = {"state_hash": self._hashes.status()}
        return web.json_response({**identity, **quorum, **disk, **cluster, **state})

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        """The committed image as packed records, a slice at a time so that nobody else waits.

        Anyone may ask, so nothing is sent by which a password could be guessed.
        """
        image = self._loader.image
        provenance = f"{image.offset} {image.epoch} {image.timestamp_ms}"
        response = web.StreamResponse(headers={PROVENANCE_HEADER: provenance})
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        records = map(without_secrets, image.records())
        slices = Slices()
        while chunk := list(islice(records, STEP_RECORDS)):
            await response.write(RECORD_CODEC.pack_all(chunk))
            await slices.rest()
        await response.write_eof()
        return response


def without_secrets(record: Record) -> Record:
    """The record; of a credential only whose it is, of which mechanism, and how many iterations."""
    if isinstance(record, UserScramCredentialRecord):
        return replace(record, salt=b"", stored_key=b"", server_key=b"")
    return record


def quorum_json(status: QuorumStatus) -> dict[str, Any]:
    """The quorum as this node sees it; only the leader knows how far replicas are."""
    return {
        "role": status.role,
        "leader_id": status.leader_id,
        "epoch": status.epoch,
        "high_watermark": status.high_watermark,
        "log_end_offset": status.log_end_offset,
        "voters": _replicas_json(status, status.voters),
        "observers": _replicas_json(status, status.observers),
        "voter_set": [_voter_json(voter) for voter in status.voter_set],
        "voters_offset": status.voters_offset,
    }


def _voter_json(voter: Voter) -> dict[str, int | str | None]:
    return {
        "node_id": voter.replica.node_id,
        "directory_id": _uuid(voter.replica.directory_id),
        "host": voter.host,
        "port": voter.port,
    }


def _uuid(identity: UUID | None) -> str | None:
    return None if identity is None else uuid_text(identity)


def _replicas_json(
    status: QuorumStatus, replicas: Sequence[ReplicaStatus]
) -> list[dict[str, int | str | None]]:
    return [
        {
            "node_id": replica.node_id,
            "directory_id": _uuid(replica.directory_id),
            "log_end_offset": replica.log_end_offset,
            "lag": status.log_end_offset - replica.log_end_offset,
            "last_fetch_age_ms": _age(status.now_ms, replica.last_fetch_ms),
            "last_caught_up_age_ms": _age(status.now_ms, replica.last_caught_up_ms),
        }
        for replica in replicas
    ]


def _age(now_ms: int, then_ms: int | None) -> int | None:
    return None if then_ms is None else now_ms - then_ms


def cluster_json(image: MetadataImage, counts: PartitionCounts) -> dict[str, Any]:
    """Brokers and the health of partitions, given the image's counts."""
    return {
        "brokers": [
            {
                "broker_id": broker_id,
                "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints],
                "rack": broker.rack,
                "fenced": broker.fenced,
                "in_controlled_shutdown": broker.in_controlled_shutdown,
                "broker_epoch": broker.broker_epoch,
                "leaders": counts.leaders[broker_id],
                "replicas": counts.replicas[broker_id],
            }
            for broker_id, broker in sorted(image.brokers.items())
        ],
        "topics": len(image.topics.topics),
        "partitions": counts.partitions,
        "offline_partitions": counts.offline,
        "under_replicated_partitions": counts.under_replicated,
        "metadata_offset": image.offset,
    }
