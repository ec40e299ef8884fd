"""How the demo shows that it works: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Protocol

from raftctl.cli._output import Output, say, say_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_PLAIN_EVERY_S = 2.0


class Progress(Protocol):
    """What the demo tells while it works; from any thread."""

    def phase(self, name: str, total: int) -> None:
        """A new piece of work of `total` steps begins; the one before is over."""

    def update(self, done: int) -> None:
        """So many steps are done."""

    def tell(self, sentence: str) -> None:
        """Something happened."""


class PlainProgress:
    """Lines of text, at most one every two seconds for a phase."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._name, self._total, self._done = "", 0, 0
        self._told_s = 0.0

    def phase(self, name: str, total: int) -> None:
        """Ends the phase before and begins another."""
        self.finish()
        self._name, self._total, self._done = name, total, 0
        self._told_s = time.monotonic()

    def update(self, done: int) -> None:
        """Prints the state if the last time is long enough ago."""
        self._done = done
        if time.monotonic() - self._told_s >= _PLAIN_EVERY_S:
            self._told_s = time.monotonic()
            self._print()

    def tell(self, sentence: str) -> None:
        """Prints the sentence."""
        self._write(sentence)

    def finish(self) -> None:
        """Prints the last state of the phase."""
        if self._name:
            self._print()

    def _print(self) -> None:
        percent = 100 * self._done // max(1, self._total)
        self._write(f"{self._name}: {self._done:,} of {self._total:,} ({percent} %)")


class BarProgress:
    """A bar for each phase."""

    def __init__(self, rich: RichProgress) -> None:
        self._rich = rich
        self._task: TaskID | None = None

    def phase(self, name: str, total: int) -> None:
        """Adds a bar."""
        self._task = self._rich.add_task(name, total=total)

    def update(self, done: int) -> None:
        """Moves the bar."""
        if self._task is not None:
            self._rich.update(self._task, completed=done)

    def tell(self, sentence: str) -> None:
        """Prints the sentence above the bars."""
        self._rich.console.print(sentence, markup=False, highlight=False)


@contextlib.contextmanager
def show_progress(output: Output) -> Iterator[Progress]:
    """The right form for this stdout; beside JSON, lines on stderr."""
    if output is Output.JSON or not sys.stdout.isatty():
        plain = PlainProgress(say if output is Output.TABLE else say_progress)
        yield plain
        plain.finish()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with RichProgress(*columns) as rich:
        yield BarProgress(rich)
