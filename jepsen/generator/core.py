"""Generators: immutable descriptions of the next operation, given time and free threads.

`next_op` returns an operation and the generator's successor, PENDING if there is none at present,
or None if there is none any more. `updated` returns the successor after an invocation or a
completion. Time, free threads and randomness come with the context. A thread is one worker (a
number, or NEMESIS); the process it plays changes after each operation that ends with `info`.
Source: Jepsen's `jepsen.generator`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from jepsen.history import Op

Thread = int | str
"""A worker: a number from 0, or NEMESIS."""
NEMESIS: Final = "nemesis"
OBSERVER: Final = "observer"
"""The process of what was seen of the cluster: `leader`, with its name and epoch."""
SECOND_NS = 1_000_000_000


class Pending:
    """The generator has nothing to do now, but may later."""


PENDING: Final = Pending()


@dataclass(frozen=True, slots=True)
class Todo:
    """An operation to be invoked."""

    f: str
    value: Any = None
    key: Any = None
    thread: Thread | None = None
    """None until a free one is chosen."""
    time: int = 0
    """Nanoseconds since the test began; not to be invoked before."""

    def at(self, time: int) -> Todo:
        """Return the same operation at another time."""
        return Todo(self.f, self.value, self.key, self.thread, time)


class Processes(dict[Thread, int | str]):
    """Which process each thread plays. Never changed, so what was found in it is kept."""

    def __init__(self, plays: Mapping[Thread, int | str]) -> None:
        super().__init__(plays)
        self._parts: dict[Callable[[Thread], bool], Processes] = {}
        self._threads = {process: thread for thread, process in plays.items()}

    def restricted(self, wanted: Callable[[Thread], bool]) -> Processes:
        """Return the threads that fulfil the predicate; equal predicates are evaluated once."""
        if wanted not in self._parts:
            mine = {thread: one for thread, one in self.items() if wanted(thread)}
            self._parts[wanted] = Processes(mine)
        return self._parts[wanted]

    def thread_of(self, process: int | str) -> Thread | None:
        """Which thread plays the process, if one of these does."""
        return self._threads.get(process)


@dataclass(frozen=True, slots=True)
class Context:
    """State that a generator may use."""

    time: int
    """Nanoseconds since the test began."""
    free: tuple[Thread, ...]
    """The threads that have nothing to do."""
    processes: Processes
    """Which process each thread plays, of all threads that this generator may use."""
    random: random.Random

    def restricted(self, wanted: Callable[[Thread], bool]) -> Context:
        """Return the context for a generator that may use those threads only."""
        mine = self.processes.restricted(wanted)
        free = tuple(thread for thread in self.free if thread in mine)
        return Context(self.time, free, mine, self.random)

    def thread_of(self, process: int | str) -> Thread | None:
        """Which thread plays the process, if one of these does."""
        return self.processes.thread_of(process)


Next = tuple[Todo | Pending, "Generator"] | None
"""What to do and what is left; None if there is nothing more ever."""


class Generator(Protocol):
    """See the module."""

    __slots__ = ()

    def next_op(self, context: Context) -> Next:
        """Return the next operation, its time not before the context's."""

    def updated(self, context: Context, event: Op) -> Generator:
        """Return the generator after an invocation or completion; the context is that after it."""


class Plain(Generator):
    """A generator that does not care for events."""

    __slots__ = ()

    def updated(self, context: Context, event: Op) -> Any:
        return self


def filled(todo: Todo, context: Context) -> Todo | Pending:
    """Return the operation with a free thread, and a time that is not in the past."""
    thread = todo.thread
    if thread is None:
        if not context.free:
            return PENDING
        thread = context.random.choice(context.free)
    elif thread not in context.free:
        return PENDING
    return Todo(todo.f, todo.value, todo.key, thread, max(todo.time, context.time))


@dataclass(frozen=True, slots=True)
class Once(Plain):
    """One operation."""

    todo: Todo

    def next_op(self, context: Context) -> Next:
        todo = filled(self.todo, context)
        return (todo, self if todo is PENDING else NOTHING)


@dataclass(frozen=True, slots=True)
class Nothing(Plain):
    """No operation at all."""

    def next_op(self, context: Context) -> Next:
        return None


NOTHING: Final = Nothing()


@dataclass(frozen=True, slots=True)
class Endless(Plain):
    """Whatever the function returns, for ever; it may draw from the context's randomness."""

    make: Callable[[Context], Todo]

    def next_op(self, context: Context) -> Next:
        if not context.free:
            return PENDING, self
        return filled(self.make(context), context), self


@dataclass(frozen=True, slots=True)
class Numbered(Plain):
    """Operations that a function makes of 0, 1, 2, ... for ever."""

    make: Callable[[int], Todo]
    number: int = 0

    def next_op(self, context: Context) -> Next:
        todo = filled(self.make(self.number), context)
        return todo, self if todo is PENDING else replace(self, number=self.number + 1)
