"""The picture on a terminal: asked for in the background, drawn when it changes, keys at once."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from raftctl.cli.top._page import Settings, render
from raftctl.cli.top._view import make_view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from raftctl.cli.top._nodes import Asker
    from raftctl.cli.top._view import Answer

TICK_S = 0.1
_KEY_BYTES = 64


def show_live(asker: Asker, interval_s: float) -> None:
    """Show the cluster until the user ends it; the terminal is left as it was."""
    console = Console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        ThreadPoolExecutor(max_workers=1) as pool,
        _keys() as descriptor,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        _Picture(asker, interval_s, console, live, pool).run(descriptor)


class _Picture:
    def __init__(
        self,
        asker: Asker,
        interval_s: float,
        console: Console,
        live: Live,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._asker = asker
        self._interval_s = interval_s
        self._console = console
        self._live = live
        self._pool = pool
        self._settings = Settings()
        self._answers: list[Answer] = []
        self._before: list[Answer] = []
        self._asked_at = 0.0
        self._asking: Future[list[Answer]] | None = None

    def run(self, descriptor: int) -> None:
        """Go on until a key ends it."""
        drawn: object = None
        while True:
            self._take_answers()
            state = (self._settings, self._console.size, id(self._answers))
            if state != drawn:
                drawn = state
                self._draw()
            for key in _pressed(descriptor):
                if key == "q":
                    return
                self._settings = self._settings.pressed(key)

    def _take_answers(self) -> None:
        if self._asking is not None and self._asking.done():
            answers, self._asking = self._asking.result(), None
            if not self._settings.is_paused:
                self._before, self._answers = self._answers, answers
        due = time.monotonic() >= self._asked_at + self._interval_s
        if self._asking is None and due and not self._settings.is_paused:
            self._asked_at = time.monotonic()
            self._asking = self._pool.submit(self._asker.ask)

    def _draw(self) -> None:
        width, height = self._console.size
        if not self._answers:
            self._live.update(Text("asking the nodes"), refresh=True)
            return
        lines = render(make_view(self._answers, self._before), self._settings, width, height)
        self._live.update(Group(*lines), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """The descriptor from which keys come as they are pressed; -1 if there is no keyboard."""
    if not sys.stdin.isatty():
        yield -1
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    # Ctrl-C is still a signal.
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _pressed(descriptor: int) -> str:
    """The keys pressed within a tick."""
    if descriptor < 0:
        time.sleep(TICK_S)
        return ""
    ready, _, _ = select.select([descriptor], [], [], TICK_S)
    if not ready:
        return ""
    read = os.read(descriptor, _KEY_BYTES)
    # Without a byte the terminal is gone; a key that sends an escape sequence is none of ours.
    if not read:
        return "q"
    return "" if read.startswith(b"\x1b") else read.decode(errors="ignore")
