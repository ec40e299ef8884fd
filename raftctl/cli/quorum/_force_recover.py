"""`raftctl quorum force-recover`: a quorum of the one replica that is left (row Q8).

Offline and explicit: for the day when a majority of the disks is gone. Apache Kafka has no such
tool; etcd calls its own `--force-new-cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._output import Output, OutputOption, say_progress, show
from raftctl.cli.offline.voters import voter_text
from raftctl.config.addresses import parse_servers
from raftctl.errors import ConfigError
from raftctl.raft.messages import Voter

if TYPE_CHECKING:
    from raftctl.quorum import Recovery, Survivor
    from raftctl.runtime.real import RealFileSystem


def force_recover(
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="The data directory of the survivor.")
    ],
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where it listens, if its disk does not tell."),
    ] = None,
    understood: Annotated[
        bool,
        typer.Option(
            "--i-understand-data-loss", help="Do it; without this it only shows what may be lost."
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Makes a single replica the quorum. For when a majority is lost for good.

    The node must be stopped. What was committed and is not on this disk is lost; what is on this
    disk and was never committed becomes committed. Choose the replica with the highest last epoch
    and, of those, the highest log end. The disks of all other controllers must be formatted anew
    before they are started again: with the old ones they could elect a leader of their own.
    """
    from pathlib import Path

    from raftctl.runtime.real import RealFileSystem

    files, path = RealFileSystem(), str(Path(directory).absolute())
    if not files.is_directory(path):
        raise ConfigError(f"--dir {directory}: no such directory")
    lock = files.lock_directory(path)
    try:
        recovery = _open(files, path)
        try:
            say_progress(survivor_text(recovery.survivor))
            if not understood:
                raise ConfigError(
                    "nothing was changed: give --i-understand-data-loss to rebuild the quorum from "
                    "this disk alone"
                )
            voter = _voter(recovery.survivor, endpoint)
            epoch = recovery.rebuild(voter)
        finally:
            recovery.close()
    finally:
        lock.release()
    document = survivor_document(recovery.survivor) | {"voter": voter_text(voter), "epoch": epoch}
    show(output, document, f"{voter_text(voter)} is the only voter from epoch {epoch} on; start it")


def _open(files: RealFileSystem, path: str) -> Recovery:
    from raftctl.quorum import Recovery
    from raftctl.storage.log import CorruptLogError
    from raftctl.storage.quorum_state import CorruptQuorumStateError
    from raftctl.storage.snapshots import CorruptSnapshotError

    try:
        return Recovery(files, path)
    except (CorruptLogError, CorruptSnapshotError, CorruptQuorumStateError) as error:
        raise ConfigError(f"--dir {path}: not the disk to recover from: {error}") from None


def _voter(survivor: Survivor, endpoint: str | None) -> Voter:
    if endpoint is not None:
        try:
            (server,) = parse_servers(endpoint)
        except ValueError as error:
            raise ConfigError(f"--endpoint: {error}") from None
        return Voter(survivor.replica, server.host, server.port)
    known = survivor.voters and survivor.voters.voter(survivor.replica.node_id)
    if not known:
        raise ConfigError(
            "--endpoint: this disk does not tell where its node listens; give the HOST:PORT of its "
            "controller listener"
        )
    return Voter(survivor.replica, known.host, known.port)


def survivor_document(survivor: Survivor) -> dict[str, Any]:
    """What the disk has, and from where on it may lack something."""
    return {
        "cluster_id": survivor.cluster_id,
        "node_id": survivor.replica.node_id,
        "log_end_offset": survivor.log_end_offset,
        "last_epoch": survivor.last_epoch,
        "known_epoch": survivor.epoch,
        "known_committed_offset": survivor.committed_offset,
        "torn_bytes": survivor.torn_bytes,
        "voters": [voter_text(one) for one in survivor.voters.voters] if survivor.voters else None,
    }


def survivor_text(survivor: Survivor) -> str:
    """The same for people."""
    voters = "as configured (controller.quorum.voters)"
    if survivor.voters is not None:
        voters = ", ".join(map(voter_text, survivor.voters.voters))
    return "\n".join(
        (
            f"node {survivor.replica.node_id} of cluster {survivor.cluster_id}",
            f"log end offset:   {survivor.log_end_offset}, last record of epoch "
            f"{survivor.last_epoch}; newest epoch known: {survivor.epoch}",
            f"known committed:  below {survivor.committed_offset} (its newest snapshot; the high "
            "watermark is on no disk)",
            f"voters so far:    {voters}",
            f"may be lost:      every record from offset {survivor.log_end_offset} on, which only "
            "other voters had",
            f"may come back:    records from offset {survivor.committed_offset} on that were never "
            "acknowledged",
        )
    )
