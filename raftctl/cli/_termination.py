"""Signals that end a command, so that it can clean up."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    Handler = Callable[[int, FrameType | None], None] | signal.Handlers


_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with _handled(_ENDING, interrupt):
        yield


class Ending:
    """The number of signals that asked this process to end."""

    def __init__(self) -> None:
        self.signals = 0


@contextlib.contextmanager
def counted_signals() -> Iterator[Ending]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP are counted only: for loops that end when they can."""
    ending = Ending()

    def count(number: int, frame: FrameType | None) -> None:
        ending.signals += 1

    with _handled((signal.SIGINT, *_ENDING), count):
        yield ending


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, nothing but SIGKILL ends this process: for short work that cleans up."""
    with _handled((signal.SIGINT, *_ENDING), signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handled(signals: Iterable[signal.Signals], handler: Handler) -> Iterator[None]:
    # Only the main thread may set handlers.
    heard = signals if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
