"""Failures that another part than the caller must handle: the node's root, or the awaiting task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.errors import InvariantViolation

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType

Kinds = tuple[type[BaseException], ...]

ALL: Kinds = (BaseException,)
OF_PROGRAMS: Kinds = (Exception, InvariantViolation)
"""All but what ends the program or cancels the task."""
ENDS_OF_PROGRAMS: Kinds = (SystemExit, KeyboardInterrupt)


class HandingTo:
    """`with HandingTo(tell):` calls `tell` with what leaves the block, which then goes no further.

    Kinds in `but`, and those not in `kinds`, go up as before.
    """

    __slots__ = ("_but", "_kinds", "_tell")

    def __init__(
        self, tell: Callable[[BaseException], object], kinds: Kinds = ALL, but: Kinds = ()
    ) -> None:
        self._tell = tell
        self._kinds = kinds
        self._but = but

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> bool:
        if error is None or not isinstance(error, self._kinds) or isinstance(error, self._but):
            return False
        self._tell(error)
        return True


def resolve(future: asyncio.Future[Any], outcome: object) -> None:
    """Give the future its result, or its exception if the outcome is one.

    Without effect if the caller has given up and the future is done.
    """
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class CallOutcome(NamedTuple):
    """Outcome of a call: a result, or an exception."""

    result: Any
    error: BaseException | None


def outcome_of(call: Callable[[], object], kinds: Kinds = ALL) -> CallOutcome:
    """Run a call as a thread would, which hands its failure to its waiter."""
    errors: list[BaseException] = []
    result = None
    with HandingTo(errors.append, kinds):
        result = call()
    return CallOutcome(result, errors[0] if errors else None)
