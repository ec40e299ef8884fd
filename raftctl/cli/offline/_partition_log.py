"""`raftctl log` for the files of partitions, which a broker plug-in knows how to read."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._output import Output, OutputOption, say, say_progress
from raftctl.errors import ConfigError
from raftctl.plugins import LogProblem, LogTool, log_tools
from raftctl.runtime.real import RealFileSystem
from raftctl.storage import METADATA_LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


def tool_for(target: str) -> LogTool | None:
    """The tool that knows this path as a partition's; None if it is none's."""
    path = os.path.abspath(target)
    return next((tool for tool in log_tools() if tool.recognises(path)), None)


def dump_partition(
    tool: LogTool, target: str, *, records: bool, start: int, output: Output
) -> bool:
    """Prints what stands in the files, from the offset `start` on; whether nothing is damaged."""
    problems = 0
    for path in _partitions(tool, target):
        for document in tool.dump(RealFileSystem(), path, with_records=records):
            if isinstance(document, LogProblem):
                problems += 1
                say_progress(_problem_text(document))
            elif document.get("last_offset", start) >= start:
                say(json.dumps(document) if output is Output.JSON else _text(document))
    return not problems


def holds(tool: LogTool, target: str) -> bool:
    """Whether the directory holds partitions that the tool knows."""
    return any(True for _ in _partitions(tool, target))


def _partitions(tool: LogTool, target: str) -> Iterator[str]:
    """The files below it of partitions; the metadata log lies beside them and has another form."""
    for path in _files(tool, target):
        if os.path.basename(os.path.dirname(path)) != METADATA_LOG_NAME:
            yield path


def verify(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A partition's file or directory, or the log directory above."
        ),
    ],
    output: OutputOption = Output.TABLE,
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
                if output is Output.TABLE:
                    say(_problem_text(problem))
    if checked == 0:
        raise ConfigError(f"{target}: no partition's files there; name a partition or a log dir")
    if output is Output.JSON:
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
