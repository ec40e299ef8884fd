"""Watches of keys: nothing missed, everything once and in order, wherever a watch is taken up.

`put` and `delete` of keys end with a change, `[version, key, value]` (value None: removed);
versions order all changes. `watch` and `drain` end with `{"from": version, "events": [change,
...]}`: all changes from that version to the last of the events. A watcher that begins again ends
with `{"at": version, "keys": [change, ...]}`: the keys as that version left them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import OpType, operations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.history import Op, Operation

CHANGES = ("put", "delete")
WATCHES = ("watch", "drain")


class _Change(NamedTuple):
    """A key was set, or removed (value None)."""

    version: int
    key: Any
    value: Any

    def detail(self) -> dict[str, Any]:
        """For programs."""
        return {"version": self.version, "key": self.key, "value": self.value}


class _Seen(NamedTuple):
    """Event that a watcher received, and the line that shows it."""

    line: int
    begin: int
    """The version from which on it watched, or that of the list."""
    changes: tuple[_Change, ...]
    asked: int = -1
    """The line at which a drain began: it ends with the newest key that was there then."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What certainly happened, and what may have."""

    changes: dict[int, _Change] = field(default_factory=dict)
    """By version; acknowledged, or seen by somebody and explained."""
    lines: dict[int, int] = field(default_factory=dict)
    """The line of the acknowledgement of a version."""
    begun: dict[int, int] = field(default_factory=dict)
    """The line at which the acknowledged change of a version was asked for."""
    loose: set[Any] = field(default_factory=set)
    """Keys of which a change has an unknown outcome."""
    open: dict[tuple[Any, Any], list[int]] = field(default_factory=dict)
    """By key and value: where a change was asked for of which nobody knows what came of it."""


def check_watch(history: Sequence[Op]) -> Verdict:
    """`missed`, `unexpected`, `repeated`, `out-of-order`, `wrong-list`, `version-went-back`.

    Unknown if no `drain` has succeeded: then nobody has watched to the end.
    """
    mine = operations(history)
    ok = [one for one in mine if one.type is OpType.OK]
    watches = [_seen(one) for one in ok if one.invoke.f in WATCHES and "from" in one.value]
    lists = [_seen(one) for one in ok if one.invoke.f in WATCHES and "at" in one.value]
    known = _known(mine)
    found = [*_went_back(history), *_unexpected(known, [*lists, *watches])]
    for watch in watches:
        found += _disorder(watch)
    found += _missed(known, watches)
    found += _wrong_lists(known, lists)
    drains = sum(one.invoke.f == "drain" for one in ok)
    return judge(
        found,
        why_unknown="" if drains else "no drain has succeeded",
        changes=len(known.changes),
        watches=len(watches),
        lists=len(lists),
        events=sum(len(one.changes) for one in watches),
    )


def _seen(one: Operation) -> _Seen:
    value = one.value
    line = one.completion.index if one.completion else one.invoke.index
    changes = value["events"] if "from" in value else value["keys"]
    begin = value["from"] if "from" in value else value["at"]
    asked = one.invoke.index if one.invoke.f == "drain" else -1
    return _Seen(line, begin, tuple(_Change(*change) for change in changes), asked)


def _known(mine: Sequence[Operation]) -> _Known:
    known = _Known()
    for one in mine:
        if one.invoke.f not in CHANGES:
            continue
        if one.type is OpType.OK and one.completion is not None:
            change = _Change(*one.value)
            known.changes[change.version] = change
            known.lines[change.version] = one.completion.index
            known.begun[change.version] = one.invoke.index
        elif one.type is OpType.INFO:
            _, key, value = one.invoke.value
            known.open.setdefault((key, value), []).append(one.invoke.index)
            known.loose.add(key)
    return known


def _went_back(history: Sequence[Op]) -> Iterator[Anomaly]:
    """A change that was asked for after another was acknowledged has a lesser version, or its."""
    newest = (-1, -1)
    before: dict[int | str, tuple[int, int]] = {}
    for op in history:
        if not op.by_client or op.f not in CHANGES:
            continue
        if op.type is OpType.INVOKE:
            before[op.process] = newest
        elif op.type is OpType.OK:
            version = op.value[0]
            after, line = before[op.process]
            if version <= after:
                detail = {"version": version, "after": after}
                yield Anomaly("version-went-back", detail, (line, op.index))
            newest = max(newest, (version, op.index))


def _unexpected(known: _Known, seen: Sequence[_Seen]) -> Iterator[Anomaly]:
    """What nobody asked for, or not yet; what is explained becomes known.

    A change of which nobody knows explains one version: a second one was made twice.
    """
    explained = Counter[tuple[Any, Any]]()
    for one in sorted(seen, key=lambda one: one.line):
        for change in one.changes:
            certain = known.changes.get(change.version)
            if certain is not None:
                if certain != change or known.begun.get(change.version, -1) > one.line:
                    yield Anomaly("unexpected", change.detail(), (one.line,))
                continue
            what = change.key, change.value
            asked = known.open.get(what, [])
            if sum(line < one.line for line in asked) <= explained[what]:
                yield Anomaly("unexpected", change.detail(), (one.line,))
                continue
            explained[what] += 1
            known.changes[change.version] = change


def _disorder(watch: _Seen) -> Iterator[Anomaly]:
    last = watch.begin - 1
    for change in watch.changes:
        if change.version <= last:
            name = "repeated" if change.version == last else "out-of-order"
            yield Anomaly(name, {**change.detail(), "after": last}, (watch.line,))
        last = change.version


def _missed(known: _Known, watches: Sequence[_Seen]) -> Iterator[Anomaly]:
    """A known change between the begin of a watch and its end that it did not receive."""
    versions = sorted(known.changes)
    for watch in watches:
        received = {change.version for change in watch.changes}
        first = bisect_left(versions, watch.begin)
        end = max([*received, _newest_key(known, watch.asked)])
        for version in versions[first : bisect_right(versions, end)]:
            if version not in received:
                acknowledged = known.lines.get(version)
                lines = (watch.line,) if acknowledged is None else (acknowledged, watch.line)
                yield Anomaly("missed", known.changes[version].detail(), lines)


def _newest_key(known: _Known, line: int) -> int:
    """The newest version that a list of all keys has at this line for certain; -1 if none is."""
    newest: dict[Any, _Change] = {}
    for version in sorted(known.lines):
        change = known.changes[version]
        newest[change.key] = change
    return max(
        (
            change.version
            for key, change in newest.items()
            if change.value is not None
            and known.lines[change.version] < line
            and key not in known.loose
        ),
        default=-1,
    )


def _wrong_lists(known: _Known, lists: Sequence[_Seen]) -> Iterator[Anomaly]:
    """A key is not listed as the last known change up to there left it."""
    history = [known.changes[version] for version in sorted(known.changes)]
    for one in lists:
        newest = {change.key: change for change in history if change.version <= one.begin}
        listed = {change.key: change for change in one.changes}
        for key in sorted({*newest, *listed}, key=repr):
            change, entry = newest.get(key), listed.get(key)
            removed = change is None or change.value is None
            if entry == change or (entry is None and (removed or (key, None) in known.open)):
                continue
            detail = {
                "key": key,
                "at": one.begin,
                "listed": entry and list(entry),
                "newest": change and list(change),
            }
            yield Anomaly("wrong-list", detail, (one.line,))
