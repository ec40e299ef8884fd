"""The command `raftctl demo`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from raftctl.cli._output import Output, OutputOption, OverrideOption, say_progress, show
from raftctl.cli.files import parse_overrides


def demo(
    lines: Annotated[int | None, typer.Option(min=2, help="Write no more lines than this.")] = None,
    input_file: Annotated[
        str | None,
        typer.Option("--input", metavar="FILE", help="Write this text, not Python's own sources."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep data and logs in this directory.")
    ] = None,
    override: OverrideOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kills nodes while a text is written, and reads it back.

    Starts 3 controllers and 3 brokers. Half way it kills the active controller and a partition
    leader, and starts both again. Then two clients read everything. Exit status 0 if nothing is
    lost, duplicated or out of order, else 1.
    """
    from raftctl.cli._termination import terminate_as_interrupt, uninterrupted
    from raftctl.cli.local._demo_folders import mark_as_own, new_folder, warn_of_left_over
    from raftctl.cli.local.demo._progress import show_progress
    from raftctl.cli.local.demo._run import DemoRun, result_document, result_text
    from raftctl.cli.local.demo._source import one_file, standard_library
    from raftctl.cli.offline.storage import format_storage, random_uuid_text
    from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
    from raftctl.localcluster.fork_server import NodeLauncher

    warn_of_left_over()
    spec = ClusterSpec(controllers=3, brokers=3, overrides=parse_overrides(override or ()))
    source = standard_library(lines) if input_file is None else one_file(Path(input_file), lines)
    with terminate_as_interrupt(), NodeLauncher() as launcher:
        directory = new_folder() if keep is None else Path(keep)
        try:
            cluster = LocalCluster.open(
                directory, spec, random_uuid_text, format_storage, launcher.launch
            )
            mark_as_own(directory)
            try:
                begun_s = time.monotonic()
                cluster.start_all()
                with show_progress(output) as progress:
                    result = DemoRun(cluster, source, progress, begun_s).run()
            finally:
                with uninterrupted():
                    cluster.kill_all()
        except KeyboardInterrupt:
            say_progress("interrupted: the demo's nodes are stopped")
            raise
        finally:
            if keep is None:
                with uninterrupted():
                    shutil.rmtree(directory, ignore_errors=True)
    show(output, result_document(result), result_text(result))
    raise typer.Exit(0 if result.is_good else 1)
