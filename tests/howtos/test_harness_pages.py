"""The how-to pages about the harness and the simulator, run as they are written: minutes.

Times and sizes are smaller than on the pages where the page's own would take many minutes; what
is written instead stands in a table here.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.howto_pages import ROOT, Reader, steps_to_run
from tests.integration.clusters import running_cluster
from tests.integration.test_howto_pages import FOLLOWS, INTERRUPT, Outcome, check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.howto_pages import Step

HOWTO = ROOT / "docs" / "how-to"
TIMEOUT_S = 300
JEPSEN_LOG = """\
INFO  jepsen.util - 0	:invoke	:write	3
INFO  jepsen.util - 0	:ok	:write	3
INFO  jepsen.util - 1	:invoke	:read	nil
INFO  jepsen.util - 1	:ok	:read	3
"""
REGISTER = """\
{:process 0, :type :invoke, :f :write, :value 3, :index 0, :time 10}
{:process 0, :type :ok, :f :write, :value 3, :index 1, :time 20}
{:process 1, :type :invoke, :f :read, :value nil, :index 2, :time 30}
{:process 1, :type :ok, :f :read, :value 3, :index 3, :time 40}
"""
SHORTER = {
    "--control ./breaker --time-limit 120": "--control ./breaker --time-limit 20 --interval 1",
    "--time-limit 30": "--time-limit 12",
    "--time-limit 60": "--time-limit 6",
    "--time-limit 120": "--time-limit 15",
    "--ops 10000000 --keys 100000 --faults 100": "--ops 10000 --keys 100 --faults 10",
    "SEEDS=100 ": "SEEDS=2 ",
    "run MODULE:FUNCTION": "run tests.simulation.cluster_scenarios:controllers_fail_over",
    "jepsen serve": "jepsen serve --port 0",
    "--checker kafka-log": "--checker kafka-log --idle 5",
    "--env external --bootstrap-servers host:9092": (
        "--env external --bootstrap-servers host:9092 --time-limit 6"
    ),
}
"""What the pages say -> what is typed here."""
ENDS = {
    "jepsen serve": FOLLOWS,
    "jepsen spark check made/operations": Outcome(1, "made/operations invalid"),
}
"""Commands, by their beginnings, that end otherwise than with success."""


def follow(reader: Reader, step: Step) -> None:
    """Types a command of a page and looks at how it ends."""
    found = [end for start, end in ENDS.items() if step.command.startswith(start)]
    expected = found[0] if found else Outcome(0, "")
    text = INTERRUPT + step.command if expected is FOLLOWS else step.command
    check(step, reader.run(text, TIMEOUT_S), expected)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, dict(SHORTER))
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_breaking_clusters(reader: Reader) -> None:
    with running_cluster(reader.folder / "external") as cluster:
        reader.writes["host:9092"] = cluster.layout.bootstrap
        for step in steps_to_run(HOWTO / "break-clusters.md"):
            follow(reader, step)


@pytest.mark.timeout(600)
def test_judging_histories(reader: Reader) -> None:
    ran = reader.run("jepsen test queue --time-limit 5", TIMEOUT_S)
    assert ran.status == 0, ran.output
    folder = reader.folder
    latest = folder / "store" / "latest"
    shutil.copy(latest / "history.jsonl", folder)
    (folder / "play").symlink_to(latest / "nodes")
    (folder / "etcd_1.log").write_text(JEPSEN_LOG)
    (folder / "run.edn").write_text(REGISTER)
    assert reader.run("jepsen convert run.edn registers.jsonl").status == 0
    for step in steps_to_run(HOWTO / "check-histories.md"):
        follow(reader, step)


@pytest.mark.timeout(600)
def test_testing_any_kafka(reader: Reader) -> None:
    with running_cluster(reader.folder / "external", 3, 3) as cluster:
        one, *others = cluster.layout.bootstrap.split(",")
        reader.writes["broker-1:9092,broker-2:9092"] = f"{one},{others[0]}"
        reader.writes["broker-1:9092"] = one
        breaker = reader.folder / "breaker"
        breaker.write_text(
            "#!/bin/sh\n"
            f'cd {ROOT} && exec python -m tests.howtos.breaker {cluster.directory} "$@"\n'
        )
        breaker.chmod(0o755)
        for step in steps_to_run(HOWTO / "test-any-kafka.md"):
            follow(reader, step)


@pytest.mark.timeout(600)
def test_simulating(reader: Reader) -> None:
    """Makefile and tests are in the checkout; what is written goes to the reader's folder."""
    written = {name: str(reader.folder / name) for name in ("first.txt", "servers.jsonl")}
    checkout = Reader(ROOT, SHORTER | written | {".venv/bin/python": "python"})
    for step in steps_to_run(HOWTO / "simulate.md"):
        follow(checkout, step)
    assert all((reader.folder / name).stat().st_size > 0 for name in written)
