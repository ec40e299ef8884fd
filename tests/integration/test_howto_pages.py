"""The how-to pages' commands, run as they are written: what a reader copies does what is said."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.localcluster.ports import free_ports
from tests import run
from tests.howto_pages import (
    NOT_COMMANDS,
    NOT_RUN,
    PAGES,
    README,
    ROOT,
    Reader,
    Step,
    blocks,
    lacking,
    steps,
    steps_to_run,
)
from tests.integration.clusters import running_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.howto_pages import Done

HOWTO = ROOT / "docs" / "how-to"
SLOW = "tests/howtos/test_harness_pages.py"
RUN_BY = {
    "README.md": "tests/integration/test_howto_pages.py",
    "administer.md": "tests/integration/test_howto_pages.py",
    "break-clusters.md": SLOW,
    "change-voters.md": "tests/integration/test_howto_voters.py",
    "check-histories.md": SLOW,
    "coordinate.md": "tests/integration/test_howto_pages.py",
    "measure.md": "tests/integration/test_howto_pages.py",
    "monitor.md": "tests/unit/monitoring/test_alerts.py",
    "run-a-cluster.md": "tests/integration/test_howto_pages.py",
    "secure-a-cluster.md": "tests/integration/test_tls_cluster.py",
    "simulate.md": SLOW,
    "test-any-kafka.md": SLOW,
    "tutorial.md": "tests/integration/test_tutorial.py",
    "watch-a-cluster.md": "tests/integration/test_top.py",
    "write-a-broker.md": "tests/integration/test_plugins.py",
    "write-an-authorizer.md": "tests/unit/raftctl/security/test_plugin.py",
}
"""What runs a page's commands; those of the last two are code, which these tests run, those
of `monitor.md` are files for Prometheus, which it checks, and `watch-a-cluster.md` shows a page."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ends that does not simply succeed on a new cluster, and what it says."""

    status: int
    says: str


FOLLOWS = Outcome(124, "")
"""Goes on until it is interrupted."""
INTERRUPT = "timeout -s INT 3 "
UNTIL_DONE = "raftctl reassign-partitions --verify"
"""What a reader asks until it says so; the test's own time is the limit."""
BROKERS = 6
PROGRAMS_MIN = 18
"""Of those that take too long for any test."""
FENCED_PUT = 'raftctl kv put nightly/done today --lock nightly --fence "$RAFTCTL_LOCK_TOKEN"'
BILLING = "raftctl console consume --topic orders --group billing --from-beginning --max-messages 1"
BEFORE = {"raftctl groups list": f"{BILLING} --bootstrap-server HOST:PORT"}
"""What must have been done before a command of these beginnings."""
ENDS: dict[str, dict[str, Outcome]] = {
    "administer.md": {
        "raftctl console consume --topic orders --partition 0 --offset 0": FOLLOWS,
        "raftctl verifiable-consumer": FOLLOWS,
        "raftctl delete-records": Outcome(1, "OFFSET_OUT_OF_RANGE"),
        "raftctl users set": Outcome(2, "--password-file"),
        "raftctl groups reset-offsets billing --to shift": Outcome(1, "has no offset to shift"),
        "raftctl transactions describe payments-1": Outcome(1, "TRANSACTIONAL_ID_NOT_FOUND"),
        "raftctl transactions abort": Outcome(1, "no transaction that is open"),
        "raftctl brokers unregister 4": Outcome(1, "broker 4 runs: stop it first"),
    },
    "coordinate.md": {
        "raftctl kv cas": Outcome(1, "INVALID_UPDATE_VERSION"),
        "raftctl kv watch": FOLLOWS,
        "raftctl kv elect service --listen": FOLLOWS,
    },
    "run-a-cluster.md": {
        "raftctl status --dir play --watch": FOLLOWS,
        "raftctl start": FOLLOWS,
    },
}
"""The commands of a page, by their beginnings, that end otherwise than with success: as the page
names what a reader would have, such as a transaction, and a new cluster does not.
"""
SHOWN_OTHERWISE = ("raftctl partitions list --under-replicated",)
"""Commands of which the page shows what a cluster with faults tells."""
SHOWN_AT_TIMES = "waiting:"
"""In lines that only come where something takes a while."""


def test_every_command_is_run_or_says_why_not() -> None:
    assert {page.name for page in PAGES if [*blocks(page)]} == RUN_BY.keys()
    assert [test for test in RUN_BY.values() if not (ROOT / test).exists()] == []
    for page in PAGES:
        strange = [
            f"{page.name}:{block.line}"
            for block in blocks(page)
            if not (block.is_commands or NOT_COMMANDS.match(block.lines[0]))
        ]
        assert strange == [], "neither commands nor something known"
        commands = [step.command for step in steps(page)]
        tables = {**NOT_RUN.get(page.name, {}), **ENDS.get(page.name, {})}
        unknown = [one for one in tables if not any(c.startswith(one) for c in commands)]
        assert unknown == [], f"{page.name} has no such command"
    for name in ("write-a-broker.md", "write-an-authorizer.md"):
        assert list(steps_to_run(HOWTO / name)) == []


class _ParsedError(Exception):
    """Raised by a program that would begin now."""


def programs_left_out() -> list[tuple[str, list[str]]]:
    """(module, arguments) of each program that a page names and no test runs as it is written."""
    found = []
    for page in PAGES:
        left_out = tuple(NOT_RUN.get(page.name, ()))
        for step in steps(page):
            if not left_out or not step.command.startswith(left_out):
                continue
            for command in commands_of(step.command.partition(" #")[0]):
                for module, arguments in re.findall(r"python -m (tests\.\S+)(.*)", command):
                    found.append((module, shlex.split(arguments)))
    return found


def commands_of(typed: str) -> list[str]:
    """What make would do for a target of a page, or the command itself."""
    if not typed.startswith("make "):
        return [typed]
    target, *settings = shlex.split(typed)[1:]
    if target not in run.RUNS:
        return []
    return run.commands(target, dict(one.split("=", 1) for one in settings))


def test_what_a_page_shows_is_there_whatever_the_ids_are() -> None:
    step = Step("a-page.md", 1, "", "describe", ("node 2 of cluster 1fI-UzxARw6rk1DicWofAQ",))
    assert lacking(step, "node 2 of cluster aX_dBvzWQtGzxjjSVokxKQ") == []
    assert lacking(step, "node 2 of cluster other") == list(step.shown)


# A second copy runs as a program; the first stays, since other tests hold what is in it.
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_programs_that_take_hours_take_the_options_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Benchmarks and the like are started and stopped where they have read their options."""
    parse = argparse.ArgumentParser.parse_args

    def parse_only(self: argparse.ArgumentParser, *rest: Any) -> None:
        parse(self, *rest)
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    programs = programs_left_out()
    assert len(programs) >= PROGRAMS_MIN
    for module, arguments in programs:
        monkeypatch.setattr("sys.argv", [module, *arguments])
        with pytest.raises(SystemExit if "--help" in arguments else _ParsedError):
            runpy.run_module(module, run_name="__main__", alter_sys=True)


def check(step: Step, done: Done, expected: Outcome = Outcome(0, "")) -> None:
    """The command ended as expected and, if it did, told what the page shows."""
    what = f"{step}\n{done.output}"
    assert done.status == expected.status, what
    assert expected.says in done.output, what
    assert "Traceback" not in done.output, what
    if not step.command.startswith(SHOWN_OTHERWISE):
        missing = [one for one in lacking(step, done.output) if SHOWN_AT_TIMES not in one]
        assert missing == [], what


def expected_end(step: Step) -> Outcome:
    ends = ENDS.get(step.page, {})
    found = [end for start, end in ends.items() if step.command.startswith(start)]
    return found[0] if found else Outcome(0, "")


def do(reader: Reader, step: Step) -> Done:
    """Types the command, and interrupts it if it goes on."""
    expected = expected_end(step)
    follows = expected is FOLLOWS
    done = reader.run(INTERRUPT + step.command if follows else step.command)
    check(step, done, expected)
    return done


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.timeout(400)
def test_administration_coordination_and_measurement(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", 1, BROKERS) as cluster:
        controllers, brokers = cluster.layout.controllers[0].address, cluster.layout.bootstrap
        reader = Reader(tmp_path, {"--controllers HOST:PORT": f"--controllers {controllers}"})
        reader.writes["HOST:PORT"] = brokers
        write_script(tmp_path / "job.sh", reader.written(f"{FENCED_PUT} --controllers HOST:PORT"))
        write_script(tmp_path / "serve.sh", "echo serving")
        for name in ("administer.md", "coordinate.md"):
            for step in steps_to_run(HOWTO / name):
                if step.command.startswith(FENCED_PUT):
                    continue  # in job.sh
                for beginning, first in BEFORE.items():
                    if step.command.startswith(beginning):
                        assert reader.run(first).status == 0
                if step.command.startswith(UNTIL_DONE):
                    while "in progress" in reader.run(step.command).output:
                        pass
                do(reader, step)
        nightly = reader.run("raftctl kv get nightly/done --controllers HOST:PORT")
        assert "today" in nightly.output, "job.sh wrote it under the lock"
        # A reader has other machines.
        fewer = {"records 10000 ": "records 500 ", "records 1000000": "records 20000"}
        reader.writes = fewer | reader.writes
        for step in steps_to_run(HOWTO / "measure.md"):
            do(reader, step)


@pytest.mark.timeout(240)
def test_the_readme(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {".venv/bin/": ""})
    try:
        for step in steps_to_run(README):
            told = do(reader, step).output
            if " up" in step.command:
                (line,) = [one for one in step.shown if one.startswith("bootstrap.servers=")]
                (own,) = [one for one in told.splitlines() if one.startswith("bootstrap.servers=")]
                reader.writes |= dict(zip(addresses(line), addresses(own), strict=True))
    finally:
        reader.close()


def addresses(line: str) -> list[str]:
    return line.partition("=")[2].split(",")


@pytest.mark.timeout(180)
def test_running_a_cluster(tmp_path: Path) -> None:
    """Nodes one by one are put together by the page of voters, which has the same commands."""
    reader = Reader(tmp_path)
    try:
        for step in steps_to_run(HOWTO / "run-a-cluster.md"):
            if step.section == "Restart without interruption":
                assert reader.run("raftctl up --dir play").status == 0
            if step.section == "Nodes one by one":
                reader.run("raftctl down; raftctl down --dir play")
                one_node(reader, step)
            do(reader, step)
    finally:
        reader.close()


def one_node(reader: Reader, step: Step) -> None:
    """Writes the page's file for a quorum of one, where the page names three machines."""
    (told,) = [
        block.lines
        for block in blocks(HOWTO / step.page)
        if block.section == step.section and block.lines[0].startswith("process.roles=")
    ]
    (port,) = free_ports(1)
    reader.writes = {
        ",10.0.0.2:9093,10.0.0.3:9093": "",
        ",2@10.0.0.2:9093:Dawfba3kQfKGsvnrs_4dAQ,...": "",
        "10.0.0.1:9093": f"127.0.0.1:{port}",
        "/var/lib/raftctl": str(reader.folder / "disk"),
        "--cluster-id ID": "--cluster-id 1fI-UzxARw6rk1DicWofAQ",
    }
    (reader.folder / "1.properties").write_text(reader.written("\n".join(told)))
