"""Generators for things that are judged apart from each other, each under its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jepsen.generator.combinators import ThreadRange
from jepsen.generator.core import (
    NOTHING,
    PENDING,
    Context,
    Generator,
    Next,
    Pending,
    Thread,
    Todo,
)
from jepsen.history import OpType

if TYPE_CHECKING:
    from jepsen.history import Op


@dataclass(frozen=True, slots=True)
class Rounds(Generator):
    """A generator from its beginning, again and again, each time when all its threads are free.

    In between nothing is under way, so a history can be cut there; unless it is not known what
    became of an operation, which may still take effect. So that round is the last one.
    """

    whole: Generator
    inner: Generator | None = None
    unknown: bool = False
    """Whether the outcome of an operation is."""

    def next_op(self, context: Context) -> Next:
        found = None if self.inner is None else self.inner.next_op(context)
        if found is None:
            if len(context.free) < len(context.processes):
                return PENDING, replace(self, inner=None)
            found = None if self.unknown else self.whole.next_op(context)
        return None if found is None else (found[0], replace(self, inner=found[1]))

    def updated(self, context: Context, event: Op) -> Generator:
        inner = None if self.inner is None else self.inner.updated(context, event)
        return replace(self, inner=inner, unknown=self.unknown or event.type is OpType.INFO)


@dataclass(frozen=True, slots=True)
class ConcurrentKeys(Generator):
    """Independent keys: groups of `threads` threads, each at one key after another.

    `of_key` makes the generator of the key 0, 1, 2, ...; operations get the key. Of groups that
    can go on at the same time any does: were it always the first, operations that are done before
    the next is due would all be its own.
    """

    threads: int
    of_key: Callable[[int], Generator]
    groups: Mapping[int, tuple[int, Generator]] = field(default_factory=dict)
    """Group to its key and what is left to do there."""
    next_key: int = 0

    def next_op(self, context: Context) -> Next:
        current = self
        best: tuple[Todo, int, Generator] | None = None
        free = sorted({self._group(thread) for thread in context.free})
        for group in context.random.sample(free, len(free)):
            current, found = current._ask(group, context)
            if isinstance(found[0], Todo) and (best is None or found[0].time < best[0].time):
                best = (found[0], group, found[1])
            if best is not None and best[0].time <= context.time:
                break
        if best is None:
            return PENDING, current
        todo, group, rest = best
        key = current.groups[group][0]
        groups = {**current.groups, group: (key, rest)}
        after = ConcurrentKeys(self.threads, self.of_key, groups, current.next_key)
        return Todo(todo.f, todo.value, key, todo.thread, todo.time), after

    def _ask(
        self, group: int, context: Context
    ) -> tuple[ConcurrentKeys, tuple[Todo | Pending, Generator]]:
        """What the group does next; where its key is done with, it goes on to another."""
        mine = context.restricted(ThreadRange(group * self.threads, (group + 1) * self.threads))
        if group in self.groups:
            key, inner = self.groups[group]
            found = inner.next_op(mine)
            if found is not None:
                return self, found
        key, inner = self.next_key, self.of_key(self.next_key)
        groups = {**self.groups, group: (key, inner)}
        return replace(self, groups=groups, next_key=key + 1), inner.next_op(mine) or (
            PENDING,
            NOTHING,
        )

    def _group(self, thread: Thread) -> int:
        return int(thread) // self.threads

    def updated(self, context: Context, event: Op) -> Generator:
        thread = context.thread_of(event.process)
        group = -1 if thread is None else self._group(thread)
        if group not in self.groups or self.groups[group][0] != event.key:
            return self
        key, inner = self.groups[group]
        after = inner.updated(context, event)
        if after is inner:
            return self
        return replace(self, groups={**self.groups, group: (key, after)})
