"""`raftctl log`: what stands in a metadata log, in a snapshot of it, or in a partition's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._output import Output, OutputOption, say, say_progress
from raftctl.cli.offline._partition_log import dump_partition, holds, tool_for, verify
from raftctl.cli.offline._record_json import plain, record_json
from raftctl.cli.offline.log_files import (
    DamagedLogError,
    log_files,
    read_batches,
    read_snapshot,
    records_of,
    size_of,
)
from raftctl.codec import CodecError
from raftctl.plugins import log_tools
from raftctl.storage import METADATA_LOG_NAME
from raftctl.storage.snapshots import CorruptSnapshotError

if TYPE_CHECKING:
    from raftctl.cli.offline.log_files import Place
    from raftctl.raft.batch import Batch

SNAPSHOT_SUFFIX = ".checkpoint"

app = typer.Typer(help="Shows and checks the files of logs.", no_args_is_help=True)
app.command()(verify)


@app.command()
def dump(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Segments, snapshots, log directories, or a node's data directory with all logs.",
        ),
    ],
    records: Annotated[bool, typer.Option(help="Also the records of each batch.")] = True,
    start: Annotated[int, typer.Option("--from", help="The first offset to show.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Prints the batches and records of logs. With JSON, a line for each batch.

    Of a partition also its indexes, producer snapshots and leader epochs. Of a data directory the
    metadata log, then all partitions.

    Exit status 1 where a log is damaged, after all that is whole. The node may be running: then the
    tail may be cut short by a write that is under way. Of a snapshot, which has offsets of its own,
    everything is checked before anything is printed.
    """
    whole = [_dump_one(one, records=records, start=start, output=output) for one in targets]
    if not all(whole):
        raise typer.Exit(1)


def _dump_one(target: str, *, records: bool, start: int, output: Output) -> bool:
    """Whether nothing is damaged. ConfigError for a path where no log is."""
    tool = tool_for(target)
    if tool is not None:
        return dump_partition(tool, target, records=records, start=start, output=output)
    holders = [one for one in log_tools() if Path(target).is_dir() and holds(one, target)]
    whole = True
    if not holders or Path(target, METADATA_LOG_NAME).is_dir():
        whole = _dump_metadata(target, records=records, start=start, output=output)
    for one in holders:
        whole &= dump_partition(one, target, records=records, start=start, output=output)
    return whole


def _dump_metadata(target: str, *, records: bool, start: int, output: Output) -> bool:
    try:
        if target.endswith(SNAPSHOT_SUFFIX):
            _dump_snapshot(target, records=records, output=output)
            return True
        for place, batch in read_batches(log_files(target)):
            if batch.end_offset > start:
                document = batch_json(place, batch, records=records)
                say(json.dumps(document) if output is Output.JSON else batch_text(document))
    except DamagedLogError as error:
        say_progress(f"{error} ({'a torn tail' if error.torn else 'corrupt'})")
        return False
    except CorruptSnapshotError as error:
        say_progress(str(error))
        return False
    return True


def _dump_snapshot(path: str, *, records: bool, output: Output) -> None:
    snapshot = read_snapshot(path)
    header: dict[str, Any] = {
        "file": path,
        "end_offset": snapshot.snapshot_id.offset,
        "epoch": snapshot.snapshot_id.epoch,
        "timestamp_ms": snapshot.timestamp_ms,
        "state_hash": snapshot.state_hash,
    }
    if output is Output.JSON:
        say(json.dumps(header))
    else:
        say(", ".join(f"{key} {value}" for key, value in header.items()))
    for batch in snapshot.batches if records else ():
        for record in _records(batch):
            say(json.dumps(record) if output is Output.JSON else record_text(record))


def batch_json(place: Place, batch: Batch, *, records: bool) -> dict[str, Any]:
    """The batch's header, and its records with their offsets."""
    document: dict[str, Any] = {
        "file": place.path,
        "position": place.position,
        "base_offset": batch.base_offset,
        "last_offset": batch.end_offset - 1,
        "epoch": batch.epoch,
        "timestamp_ms": batch.timestamp_ms,
        "control": batch.control,
        "bytes": size_of(batch),
    }
    if records:
        document["records"] = _records(batch)
    return document


def _records(batch: Batch) -> list[dict[str, Any]]:
    try:
        unpacked = records_of(batch)
    except CodecError as error:
        # Written by a newer version, or a bug: the bytes are as they were appended.
        return [{"unreadable": str(error), "payload": plain(batch.payload)}]
    return [
        {"offset": offset, **record_json(record)}
        for offset, record in enumerate(unpacked, batch.base_offset)
    ]


def batch_text(document: dict[str, Any]) -> str:
    """A line for the batch and one, set in, for each record."""
    header = ", ".join(f"{key} {value}" for key, value in document.items() if key != "records")
    lines = [header]
    lines += [record_text(record) for record in document.get("records", ())]
    return "\n".join(lines)


def record_text(record: dict[str, Any]) -> str:
    """A line for the record, set in."""
    fields = {key: value for key, value in record.items() if key not in ("offset", "type")}
    what = record.get("type", "?")
    return f"  {record.get('offset', '-')}: {what} {json.dumps(fields)}"
