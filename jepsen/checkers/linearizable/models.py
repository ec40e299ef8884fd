"""Sequential specifications: what one thing, used by one client at a time, does.

A model is a pure function from a state and a call to the next state, or ILLEGAL if the call cannot
have ended as it did. States are hashable. For a call of unknown outcome (`info`), `step`
returns the state after it if it took effect. Only mutators matter then: a call that leaves the
state as it is may as well not have happened.
Sources: Knossos' models; Porcupine's models for how test data means nil and failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jepsen.history import OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Hashable

ILLEGAL = object()
"""Stands for no state at all."""


class Call(NamedTuple):
    """An operation as a model sees it; calls that are equal are interchangeable."""

    f: str
    argument: Any
    """The value of the invocation; lists are tuples here."""
    result: Any
    """The value of the completion; None if nobody knows."""
    type: OpType
    """OK, FAIL or INFO."""


class Model(Protocol):
    """A sequential specification."""

    __slots__ = ()

    @property
    def initial(self) -> Hashable:
        """The state before the first call."""

    @property
    def observed_failures(self) -> tuple[str, ...]:
        """The functions whose `fail` says something about the state. Others are left out.

        So is a `fail` with an error: that says why nothing was tried, not what was found.
        """

    def only_reads(self, call: Call) -> bool:
        """Return True if the call leaves every state in which it is legal as it is.

        A write of the value that is there already does not qualify: later it may be another.
        """

    def overwrites(self, call: Call) -> bool:
        """Return True if the call is legal in every state, and always leads to the same state."""

    def step(self, state: Any, call: Call) -> Any:
        """Return the state after the call, or ILLEGAL.

        Raises ValueError for a function it lacks.
        """


@dataclass(frozen=True, slots=True)
class Register(Model):
    """A register with `read`, `write` and `cas` (argument: expected and new value).

    `failed_cas_observes`: a `cas` fails only if the value is another one than expected; otherwise
    a failed `cas` may have failed for any reason and says nothing. `nil_read_matches`: a `read`
    of nil means that the value is not known, not that it is nil.
    """

    initial: Any = None
    failed_cas_observes: bool = False
    nil_read_matches: bool = False

    @property
    def observed_failures(self) -> tuple[str, ...]:
        return ("cas",) if self.failed_cas_observes else ()

    def only_reads(self, call: Call) -> bool:
        if call.f == "cas":
            return call.type is OpType.FAIL or call.argument[0] == call.argument[1]
        return call.f == "read"

    def overwrites(self, call: Call) -> bool:
        return call.f == "write"

    def step(self, state: Any, call: Call) -> Any:
        match call.f:
            case "read":
                unknown = call.type is OpType.INFO or (
                    call.result is None and self.nil_read_matches
                )
                return state if unknown or call.result == state else ILLEGAL
            case "write":
                return call.argument
            case "cas":
                expected, new = call.argument
                if call.type is OpType.FAIL:
                    return state if state != expected else ILLEGAL
                if state == expected:
                    return new
                return state if call.type is OpType.INFO else ILLEGAL
        raise ValueError(f"a register has no {call.f}")


@dataclass(frozen=True, slots=True)
class StringValue(Model):
    """The value of one key: `get`, `put`, `append` (to the end) and `delete`."""

    initial: str = ""
    observed_failures: tuple[str, ...] = ()

    def only_reads(self, call: Call) -> bool:
        return call.f == "get"

    def overwrites(self, call: Call) -> bool:
        return call.f in ("put", "delete")

    def step(self, state: Any, call: Call) -> Any:
        match call.f:
            case "get":
                return state if call.type is OpType.INFO or call.result == state else ILLEGAL
            case "put":
                return call.argument
            case "append":
                return state + call.argument
            case "delete":
                return self.initial
        raise ValueError(f"a value has no {call.f}")


@dataclass(frozen=True, slots=True)
class Mutex(Model):
    """A lock that anybody may release: `acquire` and `release`."""

    initial: bool = False
    observed_failures: tuple[str, ...] = ()

    def only_reads(self, call: Call) -> bool:
        return False

    def overwrites(self, call: Call) -> bool:
        return False

    def step(self, state: Any, call: Call) -> Any:
        if call.f not in ("acquire", "release"):
            raise ValueError(f"a mutex has no {call.f}")
        held = call.f == "acquire"
        if state != held:
            return held
        # Had it waited for ever, it would have had no effect.
        return state if call.type is OpType.INFO else ILLEGAL


@dataclass(frozen=True, slots=True)
class Queue(Model):
    """A queue: `enqueue`, `dequeue` (result: the first value; nil if the queue is empty)."""

    initial: tuple[Any, ...] = ()
    observed_failures: tuple[str, ...] = ()

    def only_reads(self, call: Call) -> bool:
        return call.f == "dequeue" and call.type is OpType.OK and call.result is None

    def overwrites(self, call: Call) -> bool:
        return False

    def step(self, state: Any, call: Call) -> Any:
        match call.f:
            case "enqueue":
                return (*state, call.argument)
            case "dequeue":
                if call.type is OpType.INFO:
                    return state[1:]
                if call.result is None:
                    return ILLEGAL if state else state
                return state[1:] if state and state[0] == call.result else ILLEGAL
        raise ValueError(f"a queue has no {call.f}")


@dataclass(frozen=True, slots=True)
class UnorderedQueue(Model):
    """A bag: `enqueue`, `dequeue` (result: any value that is inside; nil if none is).

    Nobody knows what a `dequeue` of unknown outcome took, so a set of bags is one state here.
    """

    initial: frozenset[frozenset[tuple[Any, int]]] = frozenset({frozenset()})
    """A bag is (value, how often) pairs."""
    observed_failures: tuple[str, ...] = ()

    def only_reads(self, call: Call) -> bool:
        return False  # that it is empty shows which of several states it is

    def overwrites(self, call: Call) -> bool:
        return False

    def step(self, state: Any, call: Call) -> Any:
        match call.f:
            case "enqueue":
                return frozenset(_put(bag, call.argument, 1) for bag in state)
            case "dequeue" if call.type is OpType.INFO:
                # In an empty one it has no effect.
                return frozenset(_put(bag, value, -1) for bag in state for value, _ in bag) or state
            case "dequeue" if call.result is None:
                return frozenset(bag for bag in state if not bag) or ILLEGAL
            case "dequeue":
                held = (bag for bag in state if call.result in dict(bag))
                return frozenset(_put(bag, call.result, -1) for bag in held) or ILLEGAL
        raise ValueError(f"a queue has no {call.f}")


def _put(bag: frozenset[tuple[Any, int]], value: Any, count: int) -> frozenset[tuple[Any, int]]:
    counts = dict(bag)
    counts[value] = counts.get(value, 0) + count
    return frozenset((one, many) for one, many in counts.items() if many)


@dataclass(frozen=True, slots=True)
class GrowingSet(Model):
    """A set: `add` of an element, `read` (result: all elements, each once)."""

    initial: frozenset[Any] = frozenset()
    observed_failures: tuple[str, ...] = ()

    def only_reads(self, call: Call) -> bool:
        return call.f == "read"

    def overwrites(self, call: Call) -> bool:
        return False

    def step(self, state: Any, call: Call) -> Any:
        match call.f:
            case "add":
                return state | {call.argument}
            case "read" if call.type is OpType.INFO:
                return state
            case "read":
                seen = call.result
                is_all = seen is not None and len(seen) == len(state) and frozenset(seen) == state
                return state if is_all else ILLEGAL
        raise ValueError(f"a set has no {call.f}")


@dataclass(frozen=True, slots=True)
class MultiRegister(Model):
    """Several registers, read and written together: `txn` of (read | write, register, value).

    `nil_read_matches`: a read of nil means that the value is not known, not that it is nil.
    `initial` is (register, value) pairs, sorted.
    """

    initial: tuple[tuple[Any, Any], ...] = ()
    nil_read_matches: bool = False
    observed_failures: tuple[str, ...] = ()

    def only_reads(self, call: Call) -> bool:
        return all(what == "read" for what, _, _ in call.argument)

    def overwrites(self, call: Call) -> bool:
        return False

    def step(self, state: Any, call: Call) -> Any:
        if call.f != "txn":
            raise ValueError(f"registers have no {call.f}")
        values = dict(state)
        for what, register, value in call.argument if call.result is None else call.result:
            if what == "write":
                values[register] = value
            elif not (call.type is OpType.INFO or self._matches(value, values.get(register))):
                return ILLEGAL
        return hashable(values)

    def _matches(self, read: Any, value: Any) -> bool:
        return read == value or (read is None and self.nil_read_matches)
