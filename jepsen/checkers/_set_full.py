"""A set that grows: every element added with success must be read ever after.

`add` of an element, `read` of the list of all. Each element is judged by whether it is there at
the end (stable), was there or acknowledged and is not (lost), or was never looked for after that
(never read). A read that does not show what was known before it began is stale.
Where no element is stable nothing is shown: the verdict is unknown.
Source: Jepsen's `set-full`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import OpType, operations
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jepsen.history import Op, Operation


@dataclass(frozen=True, slots=True)
class _Read:
    begin: int
    end: int
    elements: frozenset[Any]
    twice: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Added:
    """All adds of one element; indexes are those of the history."""

    begin: int
    """Of the first that may have taken effect; of the first of all if none may."""
    end: int
    acknowledged: int | None
    """When the first was acknowledged."""
    failed: bool
    """Whether every one of them is known not to have taken effect."""


def check_set_full(history: Sequence[Op], *, linearizable: bool = True) -> Verdict:
    """Return the verdict; with `linearizable` a stale read is an anomaly, else a note."""
    mine = operations(history)
    adds = _adds(one for one in mine if one.invoke.f == "add")
    reads = [_read(one) for one in mine if one.invoke.f == "read" and one.type is OpType.OK]
    found = [*_impossible(adds, reads)]
    notes: list[Anomaly] = []
    counts = Counter[str]()
    for element, add in adds.items():
        if add.failed:
            continue
        outcome, reader = _outcome(element, add, reads)
        counts[outcome] += 1
        if outcome not in ("lost", "stale"):
            continue
        anomaly = Anomaly(outcome, {"element": element}, (add.end, reader))
        (notes if outcome == "stale" and not linearizable else found).append(anomaly)
    unknown = "" if reads else "no read has succeeded"
    if reads and not counts["stable"] and not counts["stale"]:
        unknown = "no element is known to have stayed"
    return judge(
        found,
        notes=notes,
        why_unknown=unknown,
        elements=len(adds),
        reads=len(reads),
        **counts,
    )


def _adds(adding: Iterable[Operation]) -> dict[Any, _Added]:
    """All adds of each element as one: what one of them may have done is not undone by another."""
    of: dict[Any, list[Operation]] = {}
    for one in adding:
        of.setdefault(hashable(one.invoke.value), []).append(one)
    return {element: _added(several) for element, several in of.items()}


def _added(several: Sequence[Operation]) -> _Added:
    done = [one.completion.index for one in several if one.type is OpType.OK and one.completion]
    tried = [one for one in several if one.type is not OpType.FAIL]
    ends = [(one.completion or one.invoke).index for one in tried or several]
    return _Added(
        begin=min(one.invoke.index for one in tried or several),
        end=min(done or ends),
        acknowledged=min(done, default=None),
        failed=not tried,
    )


def _read(operation: Operation) -> _Read:
    elements = [hashable(one) for one in operation.value or ()]
    twice = tuple(element for element, count in Counter(elements).items() if count > 1)
    end = operation.completion.index if operation.completion else operation.invoke.index
    return _Read(operation.invoke.index, end, frozenset(elements), twice)


def _impossible(adds: dict[Any, _Added], reads: list[_Read]) -> Iterator[Anomaly]:
    """`duplicate`, and `unexpected`: never added, or its add has failed, or began later."""
    for read in reads:
        for element in read.twice:
            yield Anomaly("duplicate", {"element": element}, (read.end,))
        for element in sorted(read.elements, key=repr):
            add = adds.get(element)
            if add is None or add.failed or add.begin > read.end:
                yield Anomaly("unexpected", {"element": element}, (read.end,))


def _outcome(element: Any, add: _Added, reads: list[_Read]) -> tuple[str, int]:
    """(what became of it, the read that shows it or -1)."""
    known = [read.end for read in reads if element in read.elements]
    if add.acknowledged is not None:
        known.append(add.acknowledged)
    if not known:
        return "unknown", -1
    after = [read for read in reads if read.begin > min(known)]
    if not after:
        return ("stable" if any(element in read.elements for read in reads) else "never_read"), -1
    absent = [read for read in after if element not in read.elements]
    if not absent:
        return "stable", -1
    last_absent = max(absent, key=lambda read: read.begin)
    present = [read.end for read in reads if element in read.elements]
    # A read that overlaps the last one without it may have come later.
    if any(end > last_absent.begin for end in present):
        return "stale", absent[0].end
    return "lost", last_absent.end
