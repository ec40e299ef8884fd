"""The how-to pages' commands, run as they are written: what a reader copies does what is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
TIMEOUT_S = 60
COMMAND = re.compile(r"(\$ )?(raftctl|echo|printf|jepsen|make|curl|python|\.venv/bin/)")
ELSEWHERE = {
    "break-clusters.md": "tests/integration/test_harness.py",
    "change-voters.md": "tests/integration/test_voters.py",
    "check-histories.md": "tests/unit/jepsen/test_check_command.py",
    "measure.md": "tests/integration/test_bench.py",
    "run-a-cluster.md": "tests/integration/test_local_cluster.py",
    "simulate.md": "tests/simulation/test_cluster_chaos.py",
    "test-any-kafka.md": "tests/peers/test_harness.py",
    "write-a-broker.md": "tests/integration/test_plugins.py",
}
"""Pages whose commands need other machines, or minutes: what runs them in another form."""


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
FENCED_PUT = 'raftctl kv put nightly/done today --lock nightly --fence "$RAFTCTL_LOCK_TOKEN"'
BILLING = "raftctl console consume --topic orders --group billing --from-beginning --max-messages 1"
BEFORE = {"raftctl groups list": f"{BILLING} --bootstrap-server HOST:PORT"}
"""What must have been done before a command of these beginnings."""
RUN: dict[str, dict[str, Outcome]] = {
    "administer.md": {
        "raftctl console consume --topic orders --partition 0 --offset 41": FOLLOWS,
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
}
"""The commands of a page, by their beginnings, that end otherwise than with success: as the page
names what a reader would have, such as a transaction, and a new cluster does not.
"""


def commands(page: str) -> Iterator[str]:
    """The shell commands of a page in order, each with its continuation lines."""
    lines = iter((PAGES / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("    ") and COMMAND.match(line.strip()):
            command = line.strip().removeprefix("$ ")
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            yield command


def test_every_page_is_run_here_or_elsewhere() -> None:
    assert {page.name for page in PAGES.glob("*.md")} == {*RUN, *ELSEWHERE}
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).exists()] == []
    for page, outcomes in RUN.items():
        beginnings = [one for one in outcomes if not any(c.startswith(one) for c in commands(page))]
        assert beginnings == [], f"{page} has no such command"


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.timeout(400)
def test_the_commands_of_the_pages_do_what_they_say(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
        )

    with running_cluster(tmp_path / "cluster", 1, BROKERS) as cluster:
        controllers, brokers = cluster.layout.controllers[0].address, cluster.layout.bootstrap
        fenced = f"{FENCED_PUT} --controllers {controllers}"
        write_script(tmp_path / "job.sh", fenced)
        write_script(tmp_path / "serve.sh", "echo serving")
        for page, outcomes in RUN.items():
            for command in commands(page):
                if command.startswith(FENCED_PUT):
                    continue  # in job.sh
                where = controllers if "--controllers" in command else brokers
                for beginning, first in BEFORE.items():
                    if command.startswith(beginning):
                        assert run(first.replace("HOST:PORT", where)).returncode == 0
                found = [one for start, one in outcomes.items() if command.startswith(start)]
                expected = found[0] if found else Outcome(0, "")
                text = command.replace("HOST:PORT", where)
                done = run(INTERRUPT + text if expected is FOLLOWS else text)
                while command.startswith(UNTIL_DONE) and "in progress" in done.stdout:
                    done = run(text)
                assert done.returncode == expected.status, f"{page}: {command}\n{done.stdout}"
                assert expected.says in done.stdout, f"{page}: {command}\n{done.stdout}"
                assert "Traceback" not in done.stdout, f"{page}: {command}\n{done.stdout}"
        nightly = run(f"raftctl kv get nightly/done --controllers {controllers}")
        assert "today" in nightly.stdout, "job.sh wrote it under the lock"
