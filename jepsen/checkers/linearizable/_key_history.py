"""The lines of a history by key, with numbers for operations: what the searches go through.

A history of a million operations is gone through once, without an object for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._machine import call_of
from jepsen.history import HistoryError, Op, Operation, OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jepsen.checkers.linearizable._machine import Machine
    from jepsen.checkers.linearizable.models import Model

SILENT = -1
"""In place of a call: the operation says nothing."""


class Track:
    """The operations on one key, numbered as they begin."""

    __slots__ = ("completions", "invokes", "moments")

    def __init__(self) -> None:
        self.invokes: list[Op] = []
        self.completions: list[Op | None] = []
        """None where the history ends before."""
        self.moments: list[int] = []
        """An operation's number where it begins, its complement (~) where it ends, in order."""

    def operation(self, number: int) -> Operation:
        """The operation from end to end."""
        return Operation(self.invokes[number], self.completions[number])

    def operations(self) -> list[Operation]:
        """All of them."""
        return list(map(Operation, self.invokes, self.completions))

    def end(self, number: int) -> int:
        """Where in the history the operation ends, which is known to do so."""
        completion = self.completions[number]
        return -1 if completion is None else completion.index


def tracks_of(history: Iterable[Op]) -> dict[Any, Track]:
    """The track of each key, in the order of their first operations. Raises HistoryError."""
    tracks: dict[Any, Track] = {}
    open_calls: dict[int | str, tuple[Track, int]] = {}
    last, in_order = -1, True
    for op in history:
        process = op.process
        if not isinstance(process, int):
            continue
        if op.index < last:
            in_order = False
        last = op.index
        if op.type is OpType.INVOKE:
            if process in open_calls:
                raise HistoryError(f"op {op.index}: process {process} has not finished another")
            track = _track(tracks, op.key)
            number = len(track.invokes)
            open_calls[process] = track, number
            track.invokes.append(op)
            track.completions.append(None)
            track.moments.append(number)
        else:
            begun = open_calls.pop(process, None)
            if begun is None:
                raise HistoryError(f"op {op.index}: process {process} has begun nothing")
            track, number = begun
            track.completions[number] = op
            track.moments.append(~number)
    return tracks if in_order else _sorted(tracks)


def _sorted(tracks: dict[Any, Track]) -> dict[Any, Track]:
    """The tracks of lines that did not come in their order."""
    found = [(key, track_of(track.operations())) for key, track in tracks.items()]
    found.sort(key=lambda pair: pair[1].invokes[0].index)
    return dict(found)


def _track(tracks: dict[Any, Track], key: Any) -> Track:
    key = hashable(key)
    track = tracks.get(key)
    if track is None:
        track = tracks[key] = Track()
    return track


def track_of(mine: Iterable[Operation]) -> Track:
    """The track of operations that belong together."""
    track = Track()
    moments = []
    for number, operation in enumerate(sorted(mine, key=lambda one: one.invoke.index)):
        track.invokes.append(operation.invoke)
        track.completions.append(operation.completion)
        moments.append((operation.invoke.index, number))
        if operation.completion is not None:
            moments.append((operation.completion.index, ~number))
    moments.sort()  # no two have the same line
    track.moments = [moment for _, moment in moments]
    return track


def calls_of(track: Track, machine: Machine, model: Model) -> list[int] | None:
    """The call of each operation, SILENT where it says nothing; None if an outcome is unknown that
    may have changed something.
    """
    calls = []
    numbers, ok, fails = machine.call_numbers, OpType.OK, model.observed_failures
    for invoke, completion in zip(track.invokes, track.completions, strict=True):
        if completion is None or completion.type is OpType.INFO:
            if not model.only_reads(call_of(Operation(invoke, completion))):
                return None
            calls.append(SILENT)
        elif completion.type is ok or (completion.f in fails and completion.error is None):
            argument, result = invoke.value, completion.value
            if argument.__class__ is list:
                argument = tuple(argument)
            if result.__class__ is list:
                result = tuple(result)
            try:
                calls.append(numbers[invoke.f, argument, result, completion.type])
            except (KeyError, TypeError):  # not seen yet, or no key as it is
                calls.append(machine.call_id(call_of(Operation(invoke, completion))))
        else:
            calls.append(SILENT)
    return calls
