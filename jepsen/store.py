"""Run folders: what a test was, its history, its verdict and the nodes' logs.

<store>/<test>/<time>/test.json       all that makes the run again
<store>/<test>/<time>/history.jsonl   written while it runs
<store>/<test>/<time>/history.parquet what clients did; only where pyarrow is
<store>/<test>/<time>/ending.json     how it ended: of itself, interrupted, by a node's failure
<store>/<test>/<time>/plan.json       the faults that struck, as `jepsen test --plan` takes them
<store>/<test>/<time>/results.json    the verdicts, once judged
<store>/<test>/<time>/nodes/          data and logs of a local cluster
<store>/<test>/latest, <store>/latest  the newest run that has a verdict
<store>/current                       the newest run that has begun, while it runs and after
<store>/crashed/<test>/<time>/        what there is of a run that broke off, and why.txt
<store>/test-all/<time>/              a matrix of tests; `latest` is the newest
(jepsen.runner.matrix)
"""

from __future__ import annotations

import contextlib
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jepsen.core.spec import RunSpec
from jepsen.errors import InputError
from jepsen.history.formats import HistoryWriter, read_history
from jepsen.history.parquet import available, write_parquet
from jepsen.nemesis.plan import plan_from_json

if TYPE_CHECKING:
    from jepsen.history import Op
    from jepsen.nemesis.plan import Plan

DEFAULT_STORE = "store"
LATEST, CURRENT = "latest", "current"
TEST_FILE = "test.json"
HISTORY_FILE = "history.jsonl"
PLAN_FILE = "plan.json"
MATRICES = "test-all"
CRASHED = "crashed"
ENDING_FILE, WHY_FILE = "ending.json", "why.txt"


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _leave_current(self) -> None:
        """`current` does not point to what is about to go."""
        link = self.path.parent.parent / CURRENT
        if link.is_symlink() and link.resolve() == self.path.resolve():
            link.unlink()

    @classmethod
    def create(cls, store: Path, spec: RunSpec, command: str) -> RunFolder:
        """Make a folder with the specification in it. InputError for a store that takes none."""
        of_test = store / spec.name
        document = {"spec": spec.to_json(), "command": command}
        try:
            of_test.mkdir(parents=True, exist_ok=True)
            folder = cls(_new_directory(of_test))
            folder._write(TEST_FILE, document)
            _point(store / CURRENT, Path(spec.name) / folder.path.name)
        except OSError as error:
            raise unwritable(store, error) from None
        return folder

    def make_latest(self) -> None:
        """`latest` points to this run, of its test and of the store."""
        of_test = self.path.parent
        _point(of_test / LATEST, Path(self.path.name))
        _point(of_test.parent / LATEST, Path(of_test.name) / self.path.name)

    def remove(self) -> None:
        """Nothing is left of a run that was refused, nor of a store that had no other."""
        self._leave_current()
        shutil.rmtree(self.path, ignore_errors=True)
        for parent in (self.path.parent, self.path.parent.parent):
            with contextlib.suppress(OSError):
                parent.rmdir()  # only where nothing is left in it

    def put_aside(self, why: str) -> Path:
        """Move a run that broke off to where nobody takes it for one with a verdict."""
        test, store = self.path.parent.name, self.path.parent.parent
        of_test = store / CRASHED / test
        of_test.mkdir(parents=True, exist_ok=True)
        (self.path / WHY_FILE).write_text(why + "\n", encoding="utf-8")
        self._leave_current()
        self.path = self.path.rename(_new_directory(of_test))
        _point(of_test / LATEST, Path(self.path.name))
        with contextlib.suppress(OSError):
            (store / test).rmdir()
        return self.path

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a folder; InputError if it is no run."""
        if not (path / TEST_FILE).is_file():
            raise InputError(
                f"{path}: not a run: name a folder with test.json, such as store/latest"
            )
        return cls(path.resolve())

    @property
    def spec(self) -> RunSpec:
        """Specification of the run."""
        return RunSpec.from_json(self._read(TEST_FILE)["spec"])

    @property
    def command(self) -> str:
        """Command that repeats the run."""
        return str(self._read(TEST_FILE)["command"])

    @property
    def nodes(self) -> Path:
        """Folder of a local cluster."""
        return self.path / "nodes"

    @property
    def results(self) -> dict[str, Any] | None:
        """The verdicts; None if it was not judged."""
        return self._read("results.json") if (self.path / "results.json").is_file() else None

    @property
    def ending(self) -> dict[str, Any] | None:
        """End of the run (`jepsen.core._evidence.Ending`); None if it was never recorded."""
        return self._read(ENDING_FILE) if (self.path / ENDING_FILE).is_file() else None

    def write_ending(self, document: dict[str, Any]) -> None:
        """Keep how the run ended, for later judgement."""
        self._write(ENDING_FILE, document)

    def writer(self) -> HistoryWriter:
        """Return the writer of the history, which must not exist yet."""
        return HistoryWriter(self.path / HISTORY_FILE)

    def history(self) -> list[Op]:
        """Return what was written so far."""
        path = self.path / HISTORY_FILE
        return list(read_history(path)) if path.exists() else []

    def write_parquet(self) -> None:
        """Keep what clients did as a table too, where pyarrow is installed."""
        if available():
            write_parquet(self.path / "history.parquet", self.spec.name, self.history())

    def write_plan(self, plan: Plan) -> None:
        """Keep the faults that struck, as a plan that repeats them."""
        self._write(PLAN_FILE, [fault.to_json() for fault in plan])

    @property
    def plan(self) -> Plan | None:
        """The faults that struck; None if that was not kept."""
        path = self.path / PLAN_FILE
        return plan_from_json(self._read(PLAN_FILE)) if path.is_file() else None

    def write_results(self, document: dict[str, Any]) -> None:
        """Keep the verdicts."""
        self._write("results.json", document)

    def _write(self, name: str, document: Any) -> None:
        text = json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"
        (self.path / name).write_text(text, encoding="utf-8")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{self.path / name}: {error}") from None
        return document


def unwritable(store: Path, error: OSError) -> InputError:
    """Return the error for a store that cannot be written."""
    return InputError(f"--store {store}: cannot be written: {error.strerror}; choose another")


def put_aside(store: Path, test: str) -> str:
    """Return the newest run of a test that broke off; empty if nothing is left of any."""
    latest = store / CRASHED / test / LATEST
    return str(latest.resolve()) if latest.exists() else ""


def new_matrix_folder(store: Path) -> Path:
    """Return a new folder for a matrix of tests; `latest` points to it. InputError."""
    matrices = store / MATRICES
    try:
        matrices.mkdir(parents=True, exist_ok=True)
        folder = _new_directory(matrices)
        _point(matrices / LATEST, Path(folder.name))
    except OSError as error:
        raise unwritable(store, error) from None
    return folder


def store_of_matrix(folder: Path) -> Path:
    """Return the store in which a matrix was made."""
    return folder.parent.parent


def runs(store: Path) -> list[RunFolder]:
    """Return all runs of a store, the newest first."""
    found = [
        RunFolder(path.parent)
        for path in store.glob("*/*/test.json")
        if not path.parent.is_symlink()
    ]
    return sorted(
        found, key=lambda folder: (folder.path.name, folder.path.parent.name), reverse=True
    )


def _new_directory(parent: Path) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for number in range(1000):
        path = parent / (f"{now}.{number}" if number else now)
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise InputError(f"{parent}: too many runs begin at once")


def _point(link: Path, target: Path) -> None:
    # Of several runs that begin at once each has its own.
    new = link.with_name(".".join(["", link.name, *target.parts]))
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)
