"""`jepsen test-all --jobs`: tests side by side, each in a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.verdict import Verdict
from jepsen.cli import _options as options
from jepsen.cli._output import tell
from jepsen.cli.commands import test_all as matrix_run
from jepsen.cli.main import run
from jepsen.core.spec import RunSpec
from jepsen.runner.matrix import Cell, CellOutcome, write
from jepsen.store import RunFolder, new_matrix_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jepsen.checkers.verdict import Valid

pytestmark = pytest.mark.req("J1")

STAND_IN = """
import json, os, select, signal, socket, sys
cell = json.load(sys.stdin)
name = f"{cell['workload']}-{'-'.join(cell['nemesis']) or 'healthy'}"
interrupts, wakes = socket.socketpair()
wakes.setblocking(False)
signal.signal(signal.SIGINT, lambda *_: None)
signal.set_wakeup_fd(wakes.fileno())
print("begins", file=sys.stderr, flush=True)
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as desk:
    desk.sendall(name.encode())
    if desk in select.select([desk, interrupts], [], [])[0]:
        answer = desk.recv(100).decode()
        if answer == "die":
            print("no memory", file=sys.stderr)
            os._exit(7)
        cell |= {"verdict": answer, "valid": answer == "valid", "folder": name}
        cell |= {"found": [], "seconds": 60}
print(json.dumps(cell))
"""
"""Runs no test: it says which one it would be, and what it is answered is what came of it."""


INTERRUPT = "interrupt"
NOTHING = ""


class Desk:
    """Answers processes when so many of them wait, or has this one interrupted instead."""

    def __init__(self, together: int, answers: dict[str, str]) -> None:
        self.rounds: list[set[str]] = []
        self._together = together
        self._answers = answers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_yet:
            while True:
                asking = [
                    open_yet.enter_context(self._listening.accept()[0])
                    for _ in range(self._together)
                ]
                names = [one.recv(100).decode() for one in asking]
                self.rounds.append(set(names))
                for one, name in zip(asking, names, strict=True):
                    answer = self._answers.get(name, "valid")
                    if answer == INTERRUPT:
                        os.kill(os.getpid(), signal.SIGINT)
                    else:
                        one.sendall(answer.encode())

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def desk_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    """Has processes stand in for those of tests, and makes the desk that they ask."""
    with contextlib.ExitStack() as desks:

        def make(answers: dict[str, str], together: int = 2) -> Desk:
            desk = desks.enter_context(contextlib.closing(Desk(together, answers)))
            command = (sys.executable, "-S", "-c", STAND_IN, str(desk.port))
            monkeypatch.setattr(matrix_run, "PROGRAM", command)
            return desk

        yield make


def matrix_of(store: Path, *words: str) -> int:
    pairs = ["--workload", "set,lock", "--nemesis", "kill", "--seed", "5", "--jobs", "2"]
    return run(["test-all", "--env", "sim", *pairs, *words, "--store", str(store)])


def kept(store: Path) -> dict[str, str]:
    """Verdicts by name as they stand in the store."""
    document = json.loads((store / "test-all" / "latest" / "matrix.json").read_text())
    return {f"{one['workload']}-{len(one['nemesis'])}": one["verdict"] for one in document["tests"]}


def test_so_many_run_at_a_time(
    tmp_path: Path, desk_of: Callable[..., Desk], capsys: pytest.CaptureFixture[str]
) -> None:
    desk = desk_of({"lock-kill": "invalid"})
    assert matrix_of(tmp_path) == 1
    assert desk.rounds == [{"set-healthy", "lock-healthy"}, {"set-kill", "lock-kill"}]
    assert kept(tmp_path) == {
        "set-0": "valid",
        "lock-0": "valid",
        "set-1": "valid",
        "lock-1": "invalid",
    }
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()[:4]) == [
        "lock-healthy valid",
        "lock-kill invalid",
        "set-healthy valid",
        "set-kill valid",
    ]
    assert "lock-sim-kill: begins" in told.err
    assert "about 60 s to go" in told.err


def test_a_process_that_dies_costs_its_test_only(
    tmp_path: Path, desk_of: Callable[..., Desk], capsys: pytest.CaptureFixture[str]
) -> None:
    desk_of({"set-healthy": "die"})
    assert matrix_of(tmp_path) == 255
    assert list(kept(tmp_path).values()) == ["crashed", "valid", "valid", "valid"]
    page = (tmp_path / "test-all" / "latest" / "matrix.md").read_text()
    assert "its process ended with status 7: no memory" in page


def test_an_interrupt_reaches_all_that_run_and_the_rest_can_be_resumed(
    tmp_path: Path, desk_of: Callable[..., Desk], capsys: pytest.CaptureFixture[str]
) -> None:
    desk_of({"set-kill": INTERRUPT, "lock-kill": NOTHING})
    assert matrix_of(tmp_path) == 130
    assert list(kept(tmp_path).values()) == ["valid", "valid", "not run", "not run"]
    latest = str(tmp_path / "test-all" / "latest")
    assert "--jobs 2 goes on" in capsys.readouterr().err
    resumed = desk_of({})
    assert run(["test-all", "--resume", latest, "--jobs", "2"]) == 0
    assert resumed.rounds == [{"set-kill", "lock-kill"}]
    assert set(kept(tmp_path).values()) == {"valid"}


@pytest.mark.parametrize("resumed", [False, True])
def test_tests_of_one_cluster_do_not_run_at_once(
    tmp_path: Path, desk_of: Callable[..., Desk], resumed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--env", "external", "--bootstrap-servers", "h:1", "--store", str(tmp_path)]
    asked = where
    if resumed:
        asked = ["--resume", str(new_matrix_folder(tmp_path))]
        spec = RunSpec("queue", "external", bootstrap_servers="h:1")
        write(tmp_path / "test-all" / "latest", "jepsen test-all", [Cell(spec)])
    assert run(["test-all", *asked, "--jobs", "2"]) == 254
    assert "--jobs 2: an external cluster is one" in capsys.readouterr().err
    assert not list(tmp_path.glob("queue-*"))


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [(True, "valid"), ("unknown", "unknown"), (KeyboardInterrupt(), "not run")],
)
def test_a_process_of_a_test_tells_what_came_of_it(
    tmp_path: Path,
    ended: Valid | KeyboardInterrupt,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Cell(RunSpec("set", "sim", seed=7))

    def run_one(
        spec: RunSpec, store: Path, seeds: object = None
    ) -> tuple[RunFolder, dict[str, Verdict]]:
        assert spec == asked.spec
        if isinstance(ended, KeyboardInterrupt):
            raise ended
        return RunFolder.create(store, spec, ""), {"checker": Verdict(ended, why_unknown="late")}

    monkeypatch.setattr(options, "run_one", run_one)
    monkeypatch.setattr(sys, "argv", ["cell", str(tmp_path)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked.to_json())))
    matrix_run.run_cell_of_stdin()
    told = Cell.from_json(json.loads(capsys.readouterr().out))
    assert (told.spec, told.word) == (asked.spec, verdict)


def test_what_hinders_a_test_in_its_process_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [Cell(RunSpec("queue", replication=4)), Cell(RunSpec("set"), CellOutcome(True, ""))]
    ran: list[tuple[int, str]] = []
    assert matrix_run.side_by_side(
        cells, tmp_path, lambda number, one: ran.append((number, one.word)), 2
    )
    assert ran == [(0, "crashed")]
    assert "queue-local-healthy: --replication 4: there are 3 brokers" in capsys.readouterr().err


def test_a_terminal_has_a_line_for_each_run_below_what_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    board = matrix_run.Board()
    board.show("set", "1 operation")
    board.show("lock", "12 operations, and many more")
    with board.aside():
        tell("queue is over")
    board.remove("set")
    shown: list[str] = []
    for part in capsys.readouterr().err.split("\x1b["):
        if part.startswith("J"):
            part = part[1:]
        elif "A" in part[:3] and part[:1].isdigit():
            del shown[-int(part.split("A")[0]) :]
            continue
        shown += part.splitlines()
    assert shown == ["queue is over", "lock: 12 operations"]
