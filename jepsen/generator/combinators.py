"""Generators made of generators; the names are Jepsen's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jepsen.generator.core import (
    NEMESIS,
    NOTHING,
    PENDING,
    SECOND_NS,
    Context,
    Generator,
    Next,
    Once,
    Pending,
    Plain,
    Thread,
    Todo,
)
from jepsen.history import OpType

if TYPE_CHECKING:
    from jepsen.history import Op

TIMER_S = 0.001
"""The resolution of event loops: a shorter wait lasts this long."""
CATCH_UP_NS = 100_000_000
"""How late operations may be, at most, that others which come as often make up for."""


@dataclass(frozen=True, slots=True)
class Limit(Generator):
    """At most `count` operations."""

    count: int
    inner: Generator

    def next_op(self, context: Context) -> Next:
        found = self.inner.next_op(context) if self.count > 0 else None
        if found is None:
            return None
        todo, inner = found
        return todo, Limit(self.count - (todo is not PENDING), inner)

    def updated(self, context: Context, event: Op) -> Generator:
        inner = self.inner.updated(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


@dataclass(frozen=True, slots=True)
class TimeLimit(Generator):
    """Operations for so many seconds from when the first is asked for."""

    seconds: float
    inner: Generator
    end: int | None = None

    def next_op(self, context: Context) -> Next:
        end = context.time + int(self.seconds * SECOND_NS) if self.end is None else self.end
        found = self.inner.next_op(context) if context.time < end else None
        if found is None:
            return None
        todo, inner = found
        if isinstance(todo, Todo) and todo.time >= end:
            return None
        return todo, TimeLimit(self.seconds, inner, end)

    def updated(self, context: Context, event: Op) -> Generator:
        inner = self.inner.updated(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


@dataclass(frozen=True, slots=True)
class Stagger(Generator):
    """Operations at random times, on average so many seconds apart, over all threads together.

    What comes late, because no thread was free, puts off all that follow. Unless they come so
    often that a timer's coarseness alone would make them late: then they catch up.
    """

    seconds: float
    inner: Generator
    next_time: int | None = None

    def next_op(self, context: Context) -> Next:
        found = self.inner.next_op(context)
        if found is None:
            return None
        todo, inner = found
        at = context.time if self.next_time is None else self.next_time
        if isinstance(todo, Pending):
            return PENDING, Stagger(self.seconds, inner, at)
        due, at = at, max(at, todo.time)
        late_from = max(due, at - CATCH_UP_NS) if self.seconds <= TIMER_S else at
        after = late_from + int(context.random.uniform(0, 2 * self.seconds) * SECOND_NS)
        return todo.at(at), Stagger(self.seconds, inner, after)

    def updated(self, context: Context, event: Op) -> Generator:
        inner = self.inner.updated(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


@dataclass(frozen=True, slots=True)
class Sleep(Plain):
    """Nothing for so many seconds from when it is first asked."""

    seconds: float
    end: int | None = None

    def next_op(self, context: Context) -> Next:
        end = context.time + int(self.seconds * SECOND_NS) if self.end is None else self.end
        return None if context.time >= end else (PENDING, Sleep(self.seconds, end))


@dataclass(frozen=True, slots=True)
class Then(Generator):
    """One generator after the other."""

    parts: tuple[Generator, ...]

    def next_op(self, context: Context) -> Next:
        parts = self.parts
        while parts:
            found = parts[0].next_op(context)
            if found is not None:
                return found[0], Then((found[1], *parts[1:]))
            parts = parts[1:]
        return None

    def updated(self, context: Context, event: Op) -> Generator:
        if not self.parts:
            return self
        return Then((self.parts[0].updated(context, event), *self.parts[1:]))


@dataclass(frozen=True, slots=True)
class Synchronize(Generator):
    """Begins when all its threads are free."""

    inner: Generator

    def next_op(self, context: Context) -> Next:
        if len(context.free) < len(context.processes):
            return PENDING, self
        return self.inner.next_op(context)

    def updated(self, context: Context, event: Op) -> Generator:
        return Synchronize(self.inner.updated(context, event))


def phases(*parts: Generator) -> Generator:
    """Run one after the other; each begins when all threads have finished the one before."""
    return Then(tuple(Synchronize(part) for part in parts))


@dataclass(frozen=True, slots=True)
class Mix(Generator):
    """Any of them, by chance, until all are exhausted."""

    parts: tuple[Generator, ...]

    def next_op(self, context: Context) -> Next:
        parts = list(self.parts)
        while parts:
            at = context.random.randrange(len(parts))
            found = parts[at].next_op(context)
            if found is not None:
                parts[at] = found[1]
                return found[0], Mix(tuple(parts))
            del parts[at]
        return None

    def updated(self, context: Context, event: Op) -> Generator:
        return Mix(tuple(part.updated(context, event) for part in self.parts))


@dataclass(frozen=True, slots=True)
class FlipFlop(Generator):
    """An operation of each in turn, until one is exhausted."""

    parts: tuple[Generator, ...]
    turn: int = 0

    def next_op(self, context: Context) -> Next:
        found = self.parts[self.turn].next_op(context)
        if found is None:
            return None
        todo, part = found
        parts = (*self.parts[: self.turn], part, *self.parts[self.turn + 1 :])
        step = 0 if isinstance(todo, Pending) else 1
        return todo, FlipFlop(parts, (self.turn + step) % len(parts))

    def updated(self, context: Context, event: Op) -> Generator:
        parts = tuple(part.updated(context, event) for part in self.parts)
        return replace(self, parts=parts)


@dataclass(frozen=True, slots=True)
class Cycle(Generator):
    """A generator from its beginning, again and again."""

    whole: Generator
    inner: Generator | None = None

    def next_op(self, context: Context) -> Next:
        found = None if self.inner is None else self.inner.next_op(context)
        if found is None:
            found = self.whole.next_op(context)
        return None if found is None else (found[0], Cycle(self.whole, found[1]))

    def updated(self, context: Context, event: Op) -> Generator:
        if self.inner is None:
            return self
        inner = self.inner.updated(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


@dataclass(frozen=True, slots=True)
class AnyOf(Generator):
    """Whichever has the earliest operation."""

    parts: tuple[Generator, ...]

    def next_op(self, context: Context) -> Next:
        parts = list(self.parts)
        ready: list[tuple[int, Todo, Generator]] = []
        alive = False
        for at, part in enumerate(self.parts):
            found = part.next_op(context)
            if found is None:
                continue
            alive = True
            if isinstance(found[0], Todo):
                ready.append((at, found[0], found[1]))
            else:
                # What only waits may have begun to count its time.
                parts[at] = found[1]
        if not ready:
            return (PENDING, AnyOf(tuple(parts))) if alive else None
        first = min(todo.time for _, todo, _ in ready)
        at, todo, part = context.random.choice([one for one in ready if one[1].time == first])
        parts[at] = part
        return todo, AnyOf(tuple(parts))

    def updated(self, context: Context, event: Op) -> Generator:
        parts = tuple(part.updated(context, event) for part in self.parts)
        same = all(one is other for one, other in zip(parts, self.parts, strict=True))
        return self if same else AnyOf(parts)


@dataclass(frozen=True, slots=True)
class OnThreads(Generator):
    """A generator that sees only some of the threads."""

    wanted: Callable[[Thread], bool]
    inner: Generator

    def next_op(self, context: Context) -> Next:
        found = self.inner.next_op(context.restricted(self.wanted))
        return None if found is None else (found[0], OnThreads(self.wanted, found[1]))

    def updated(self, context: Context, event: Op) -> Generator:
        mine = context.restricted(self.wanted)
        if mine.thread_of(event.process) is None:
            return self
        inner = self.inner.updated(mine, event)
        return self if inner is self.inner else OnThreads(self.wanted, inner)


def _is_nemesis(thread: Thread) -> bool:
    return thread == NEMESIS


def _is_client(thread: Thread) -> bool:
    return thread != NEMESIS


def clients(inner: Generator) -> Generator:
    """Restrict a generator to the threads of clients."""
    return OnThreads(_is_client, inner)


def nemesis(inner: Generator) -> Generator:
    """Restrict a generator to the thread of the nemesis."""
    return OnThreads(_is_nemesis, inner)


def reserve(*parts: int | Generator) -> Generator:
    """`reserve(5, writes, 2, reads, rest)`: so many threads for each, the rest for the last."""
    *counted, rest = parts
    if isinstance(rest, int) or len(counted) % 2:
        raise ValueError("reserve: a number before each generator but the last")
    ranges, first = [], 0
    for count, part in zip(counted[::2], counted[1::2], strict=True):
        if not isinstance(count, int) or isinstance(part, int):
            raise ValueError("reserve: a number before each generator but the last")
        ranges.append(OnThreads(ThreadRange(first, first + count), part))
        first += count
    return AnyOf((*ranges, OnThreads(ThreadRange(first, None), rest)))


@dataclass(frozen=True, slots=True)
class ThreadRange:
    """Predicate of the clients from `first` to before `end`."""

    first: int
    end: int | None

    def __call__(self, thread: Thread) -> bool:
        if not isinstance(thread, int):
            return False
        return self.first <= thread and (self.end is None or thread < self.end)


@dataclass(frozen=True, slots=True)
class _Each(Generator):
    """A copy of a generator for each thread, or for each process that a thread plays."""

    whole: Generator
    by_process: bool
    copies: Mapping[Any, Generator] = field(default_factory=dict)

    def next_op(self, context: Context) -> Next:
        waiting = len(context.free) < len(context.processes)
        copies = dict(self.copies)
        best: tuple[Todo, Any, Generator] | None = None
        for thread in context.free:
            name = self._name(context, thread)
            found = copies.get(name, self.whole).next_op(_only(context, thread))
            if found is None:
                copies[name] = NOTHING
            elif isinstance(found[0], Pending):
                copies[name], waiting = found[1], True
            elif best is None or found[0].time < best[0].time:
                best = (found[0], name, found[1])
        if best is not None:
            return best[0], replace(self, copies={**copies, best[1]: best[2]})
        return (PENDING, replace(self, copies=copies)) if waiting else None

    def updated(self, context: Context, event: Op) -> Generator:
        thread = context.thread_of(event.process)
        if thread is None:
            return self
        name = self._name(context, thread)
        copy = self.copies.get(name, self.whole).updated(_only(context, thread), event)
        return replace(self, copies={**self.copies, name: copy})

    def _name(self, context: Context, thread: Thread) -> Any:
        return context.processes[thread] if self.by_process else thread


def _only(context: Context, thread: Thread) -> Context:
    return context.restricted(_Thread(thread))


@dataclass(frozen=True, slots=True)
class _Thread:
    """Whether it is that thread."""

    thread: Thread

    def __call__(self, thread: Thread) -> bool:
        return thread == self.thread


def each_thread(inner: Generator) -> Generator:
    """Give each thread a copy of the generator."""
    return _Each(inner, by_process=False)


def each_process(inner: Generator) -> Generator:
    """Give each process a copy; a thread that plays another process gets a new one."""
    return _Each(inner, by_process=True)


@dataclass(frozen=True, slots=True)
class UntilOk(Generator):
    """Until an operation of it has succeeded."""

    inner: Generator
    mine: frozenset[int | str] = frozenset()
    """Processes with an operation of it under way."""
    done: bool = False

    def next_op(self, context: Context) -> Next:
        found = None if self.done else self.inner.next_op(context)
        return None if found is None else (found[0], replace(self, inner=found[1]))

    def updated(self, context: Context, event: Op) -> Generator:
        inner = self.inner.updated(context, event)
        if event.type is OpType.INVOKE:
            return replace(self, inner=inner, mine=self.mine | {event.process})
        done = self.done or (event.type is OpType.OK and event.process in self.mine)
        return UntilOk(inner, self.mine - {event.process}, done)


@dataclass(frozen=True, slots=True)
class ProcessLimit(Generator):
    """Until so many processes have taken part."""

    count: int
    inner: Generator
    seen: frozenset[int | str] = frozenset()

    def next_op(self, context: Context) -> Next:
        seen = self.seen | frozenset(context.processes.values())
        found = self.inner.next_op(context) if len(seen) <= self.count else None
        return None if found is None else (found[0], ProcessLimit(self.count, found[1], seen))

    def updated(self, context: Context, event: Op) -> Generator:
        inner = self.inner.updated(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


@dataclass(frozen=True, slots=True)
class Mapped(Generator):
    """Each operation as the function makes it."""

    change: Callable[[Todo], Todo]
    inner: Generator

    def next_op(self, context: Context) -> Next:
        found = self.inner.next_op(context)
        if found is None:
            return None
        todo = found[0]
        return (self.change(todo) if isinstance(todo, Todo) else todo), replace(
            self, inner=found[1]
        )

    def updated(self, context: Context, event: Op) -> Generator:
        inner = self.inner.updated(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


def once(f: str, value: Any = None) -> Generator:
    """Emit one operation."""
    return Once(Todo(f, value))
