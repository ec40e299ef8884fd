"""The how-to pages about the harness and the simulator, run as they are written: minutes.

Times and sizes are smaller than on the pages where the page's own would take many minutes; what
is written instead stands in a table here.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from jepsen.environments.local.namespaces import check_means
from jepsen.errors import InputError
from tests.howto_pages import ROOT, Reader, steps_to_run
from tests.integration.clusters import running_cluster
from tests.integration.test_howto_pages import FOLLOWS, INTERRUPT, Outcome, check
from tests.kit.spark.cluster import spark_cluster, spark_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.howto_pages import Step

HOWTO = ROOT / "docs" / "how-to"
TIMEOUT_S = 300
MASTER = "spark://host:7077"
SPARK_COMMANDS = 2
EXECUTOR_MEMORY = "3g"
"""More than the default of `--driver-memory`."""
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
BY_HAND = (
    "jepsen test queue --env external --bootstrap-servers broker-1:9092 --time-limit 120 &",
    "sleep ",
    "wait",
)
BY_HAND_COMMANDS = 4
CONTAINER_TOOLS = {
    "docker": 'kill*) ./breaker kill "$4";; start*) ./breaker start "$2";;',
    "kubectl": '*-STOP*) ./breaker pause "$2";; *-CONT*) ./breaker resume "$2";;',
}
"""What stands in for a program of containers: what it does with its arguments, by `case`."""
SHORTER = {
    "sleep 20": "sleep 4",
    "sleep 10": "sleep 2",
    "--nemesis partition,slow": "--nemesis partition,slow --time-limit 12",
    "--control ./breaker --time-limit 120": "--control ./breaker --time-limit 20 --interval 1",
    "broker-1:9092 --control ./breaker": (
        "broker-1:9092 --control ./breaker --workload queue --nemesis kill --time-limit 12"
    ),
    "jepsen test-all --env sim --time-limit 10": (
        "jepsen test-all --env sim --time-limit 5 --workload register --nemesis kill"
    ),
    "--time-limit 30": "--time-limit 12",
    "--time-limit 60": "--time-limit 6",
    "--time-limit 120": "--time-limit 20",
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


def follow(reader: Reader, step: Step, more: Mapping[str, str] | None = None) -> None:
    """Types a command of a page and looks at how it ends. `more`: environment variables."""
    found = [end for start, end in ENDS.items() if step.command.startswith(start)]
    expected = found[0] if found else Outcome(0, "")
    text = INTERRUPT + step.command if expected is FOLLOWS else step.command
    check(step, reader.run(text, TIMEOUT_S, more), expected)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, dict(SHORTER))
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_breaking_clusters(reader: Reader) -> None:
    with running_cluster(reader.folder / "external") as cluster:
        reader.writes |= {"host:9092": cluster.layout.bootstrap, "sudo ": ""}
        for step in steps_to_run(HOWTO / "break-clusters.md"):
            if not step.command.startswith("sudo ") or may_make_networks():
                follow(reader, step)


def may_make_networks() -> bool:
    """Whether `--network namespaces` works here: as root, with the kernel's devices."""
    try:
        check_means()
    except InputError:
        return False
    return True


@pytest.mark.timeout(600)
def test_judging_histories(reader: Reader) -> None:
    folder = reader.folder
    latest = folder / "store" / "latest"
    made = reader.run("jepsen test register --env sim --time-limit 5", TIMEOUT_S)
    assert made.status == 0, made.output
    for name in ("run-1", "run-2"):
        shutil.copytree(latest.resolve(), folder / name)
    shutil.copy(latest / "history.parquet", folder / "big.parquet")
    ran = reader.run("jepsen test queue --time-limit 5", TIMEOUT_S)
    assert ran.status == 0, ran.output
    shutil.copy(latest / "history.jsonl", folder)
    (folder / "play").symlink_to(latest / "nodes")
    (folder / "etcd_1.log").write_text(JEPSEN_LOG)
    (folder / "run.edn").write_text(REGISTER)
    assert reader.run("jepsen convert run.edn registers.jsonl").status == 0
    page = list(steps_to_run(HOWTO / "check-histories.md"))
    elsewhere = [step for step in page if MASTER in step.command]
    for step in page:
        if step not in elsewhere:
            follow(reader, step)
    on_a_spark_cluster(reader, elsewhere)


def on_a_spark_cluster(reader: Reader, page: list[Step]) -> None:
    """Types commands that name a master and a folder that all workers see."""
    assert len(page) == SPARK_COMMANDS
    environment = spark_environment()
    with spark_cluster(environment, reader.folder, EXECUTOR_MEMORY) as master:
        reader.writes |= {MASTER: master, "/shared/tmp": str(reader.folder)}
        for step in page:
            follow(reader, step, environment)


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
        page = list(steps_to_run(HOWTO / "test-any-kafka.md"))
        by_hand = [step for step in page if step.command.startswith(BY_HAND)]
        for step in page:
            if step not in by_hand:
                follow(reader, step)
        break_by_hand(reader, by_hand)


def break_by_hand(reader: Reader, page: list[Step]) -> None:
    """Types a block in one shell, where `docker` and `kubectl` break our nodes."""
    assert len(page) == BY_HAND_COMMANDS
    for name, cases in CONTAINER_TOOLS.items():
        tool = reader.folder / "tools" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\ncase $* in {cases} *) exit 2;; esac\n")
        tool.chmod(0o755)
    path = f"PATH={reader.folder / 'tools'}:$PATH"
    first, *_ = page
    typed = "; ".join([path, "set -e", *(step.command for step in page)]).replace("&;", "&")
    check(first, reader.run(typed, TIMEOUT_S), Outcome(0, "kafka: valid"))


@pytest.mark.timeout(600)
def test_simulating(reader: Reader) -> None:
    """Makefile and tests are in the checkout; what is written goes to the reader's folder."""
    written = {name: str(reader.folder / name) for name in ("first.txt", "servers.jsonl")}
    checkout = Reader(ROOT, SHORTER | written | {".venv/bin/python": "python"})
    for step in steps_to_run(HOWTO / "simulate.md"):
        follow(checkout, step)
    assert all((reader.folder / name).stat().st_size > 0 for name in written)
