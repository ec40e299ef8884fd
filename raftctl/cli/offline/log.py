"""`raftctl log`: dumps and verifies the files of logs and snapshots.

The metadata log is read here; the logs of partitions by the broker plug-in, which alone knows
their format.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._options import CommandGroup, Printer
from raftctl.cli._output import Output, say, say_progress
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
from raftctl.errors import ConfigError
from raftctl.plugins import LogProblem, LogTool, log_tools
from raftctl.runtime.real import RealFileSystem
from raftctl.storage import METADATA_LOG_NAME
from raftctl.storage.snapshots import CorruptSnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.cli.offline.log_files import Place
    from raftctl.raft.batch import Batch


SNAPSHOT_SUFFIX = ".checkpoint"

app = CommandGroup("Shows and checks the files of logs.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions(Printer):
    """What is printed of a log."""

    records: Annotated[bool, typer.Option(help="Prints the records of each batch, too.")] = True
    start: Annotated[
        int, typer.Option("--from", metavar="OFFSET", help="The first offset to show.")
    ] = 0


@app.command()
def dump(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Segments, snapshots, log directories, or a node's data directory with all logs.",
        ),
    ],
    options: DumpOptions,
) -> None:
    """Prints the batches and records of logs. With JSON, a line for each batch.

    Of a partition also its indexes, producer snapshots and leader epochs. Of a data directory the
    metadata log, then all partitions.

    What is whole is printed first; exit status 1 if a log is damaged. While the node runs, the
    tail may be cut short by a write that is under way. A snapshot has offsets of its own; it is
    checked as a whole before anything is printed.
    """
    whole = [_dump_one(one, options) for one in targets]
    if not all(whole):
        raise typer.Exit(1)


def _dump_one(target: str, options: DumpOptions) -> bool:
    """Whether nothing is damaged. ConfigError for a path where no log is."""
    tool = tool_for(target)
    if tool is not None:
        return dump_partition(tool, target, options)
    holders = [one for one in log_tools() if Path(target).is_dir() and holds(one, target)]
    whole = True
    if not holders or Path(target, METADATA_LOG_NAME).is_dir():
        whole = _dump_metadata(target, options)
    for one in holders:
        whole &= dump_partition(one, target, options)
    return whole


def _dump_metadata(target: str, options: DumpOptions) -> bool:
    try:
        if target.endswith(SNAPSHOT_SUFFIX):
            _dump_snapshot(target, options)
            return True
        for place, batch in read_batches(log_files(target)):
            if batch.end_offset > options.start:
                document = batch_json(place, batch, records=options.records)
                options.say(document, batch_text(document))
    except DamagedLogError as error:
        say_progress(f"{error} ({'a torn tail' if error.torn else 'corrupt'})")
        return False
    except CorruptSnapshotError as error:
        say_progress(str(error))
        return False
    return True


def _dump_snapshot(path: str, options: DumpOptions) -> None:
    snapshot = read_snapshot(path)
    header: dict[str, Any] = {
        "file": path,
        "end_offset": snapshot.snapshot_id.offset,
        "epoch": snapshot.snapshot_id.epoch,
        "timestamp_ms": snapshot.timestamp_ms,
        "state_hash": snapshot.state_hash,
    }
    options.say(header, ", ".join(f"{key} {value}" for key, value in header.items()))
    for batch in snapshot.batches if options.records else ():
        for record in _records(batch):
            options.say(record, record_text(record))


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


def tool_for(target: str) -> LogTool | None:
    """The tool that knows this path as a partition's; None if it is none's."""
    path = os.path.abspath(target)
    return next((tool for tool in log_tools() if tool.recognises(path)), None)


def dump_partition(tool: LogTool, target: str, options: DumpOptions) -> bool:
    """Prints what stands in the files; whether nothing is damaged."""
    problems = 0
    for path in _partitions(tool, target):
        for document in tool.dump(RealFileSystem(), path, with_records=options.records):
            if isinstance(document, LogProblem):
                problems += 1
                say_progress(_problem_text(document))
            elif document.get("last_offset", options.start) >= options.start:
                options.say(document, _text(document))
    return not problems


def holds(tool: LogTool, target: str) -> bool:
    """Whether the directory holds partitions that the tool knows."""
    return any(True for _ in _partitions(tool, target))


def _partitions(tool: LogTool, target: str) -> Iterator[str]:
    """The files below it of partitions; the metadata log lies beside them and has another form."""
    for path in _files(tool, target):
        if os.path.basename(os.path.dirname(path)) != METADATA_LOG_NAME:
            yield path


@app.command()
def verify(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="File or directory of a partition, or a log directory."
        ),
    ],
    printer: Printer,
) -> None:
    """Checks the files of partitions. That is: batches, records, indexes, snapshots, leader
    epochs.

    Each problem is a line with the file and the byte; exit status 1 if there is one. A broker that
    is running may be about to write the end of a log. `raftctl storage verify` checks the rest.
    """
    checked, problems = 0, []
    for tool in log_tools():
        for path in _files(tool, target):
            checked += 1
            for problem in tool.verify(RealFileSystem(), path):
                problems.append(
                    {"file": problem.path, "byte": problem.position, "why": problem.why}
                )
                if printer.output is Output.TABLE:
                    say(_problem_text(problem))
    if checked == 0:
        raise ConfigError(f"{target}: no partition's files there; name a partition or a log dir")
    if printer.output is Output.JSON:
        say(json.dumps({"files": checked, "problems": problems}, indent=2))
    say_progress(f"{checked} files, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


def _files(tool: LogTool, target: str) -> Iterator[str]:
    path = os.path.abspath(target)
    if not os.path.exists(path):
        raise ConfigError(f"{target}: there is no such file or directory")
    yield from tool.partition_files(RealFileSystem(), path)


def _problem_text(problem: LogProblem) -> str:
    return f"{problem.path}: byte {problem.position}: {problem.why}"


def _text(document: dict[str, Any]) -> str:
    """A line for what a file holds and one, set in, for each record."""
    shown = {key: value for key, value in document.items() if key != "records"}
    lines = [", ".join(f"{key} {value}" for key, value in shown.items())]
    lines += [f"  {json.dumps(record)}" for record in document.get("records", ())]
    return "\n".join(lines)
