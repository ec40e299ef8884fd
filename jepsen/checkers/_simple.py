"""Checkers that need one pass: counter, queue, lock, bank, and what every test must show."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import OpType, operations
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.history import Op, Operation


_NEVER = float("inf")


def _end(operation: Operation) -> float:
    """The line at which it certainly has taken effect; infinite if nobody knows."""
    completion = operation.completion
    return completion.index if completion and operation.type is OpType.OK else _NEVER


def check_counter(history: Sequence[Op]) -> Verdict:
    """`add` of a number (negative too) and `read` of the sum, which must lie within the bounds.

    The bounds count what has certainly happened before the read began, and of what may have
    happened before it ended whatever makes the sum less, or more.
    """
    mine = operations(history)
    adds = [one for one in mine if one.invoke.f == "add" and one.type is not OpType.FAIL]
    reads = [one for one in mine if one.invoke.f == "read" and one.type is OpType.OK]
    found = []
    for read in reads:
        base = sum(add.invoke.value for add in adds if _end(add) < read.invoke.index)
        maybe = [
            add.invoke.value
            for add in adds
            if _end(add) > read.invoke.index and add.invoke.index < _end(read)
        ]
        low = base + sum(number for number in maybe if number < 0)
        high = base + sum(number for number in maybe if number > 0)
        if not low <= read.value <= high:
            detail = {"low": low, "high": high, "found": read.value}
            found.append(Anomaly("out-of-bounds", detail, (int(_end(read)),)))
    unknown = "" if reads else "no read has succeeded"
    return judge(found, why_unknown=unknown, adds=len(adds), reads=len(reads))


def check_queue(history: Sequence[Op]) -> Verdict:
    """`enqueue`, `dequeue` and a final `drain` (a list); a value may be enqueued several times.

    Of each value no more is dequeued than was enqueued, and none before that began; after the last
    drain no less than was acknowledged before it. Order is not judged. Without a drain that
    succeeded nothing can be called lost; nor can what came after the last one and is still inside.
    Source: Jepsen's `total-queue`; a refused enqueue is none here.
    """
    mine = operations(history)
    enqueues: dict[Any, list[Operation]] = {}
    shown: dict[Any, list[int]] = {}
    for one in mine:
        if one.invoke.f == "enqueue":
            enqueues.setdefault(hashable(one.invoke.value), []).append(one)
        elif one.type is OpType.OK and one.invoke.f in ("dequeue", "drain"):
            values = one.value if one.invoke.f == "drain" else [one.value]
            for value in map(hashable, values):
                if value is not None:
                    shown.setdefault(value, []).append(int(_end(one)))
    drains = [one for one in mine if one.invoke.f == "drain" and one.type is OpType.OK]
    drained = max((one.invoke.index for one in drains), default=-1)
    found: list[Anomaly] = []
    recovered = left = 0
    for value, lines in shown.items():
        found += _impossible(value, lines, enqueues.get(value, []))
    for value, tries in enqueues.items():
        acknowledged = [one for one in tries if _end(one) < drained]
        taken = len(shown.get(value, ()))
        free = sorted(shown.get(value, ()))
        for one in sorted(acknowledged, key=lambda one: one.invoke.index, reverse=True):
            # What was taken before it began was another.
            if free and free[-1] > one.invoke.index:
                free.pop()
            else:
                found.append(Anomaly("lost", {"value": value}, (int(_end(one)),)))
        certain = sum(one.type is OpType.OK for one in tries)
        left += max(certain - max(taken, len(acknowledged)), 0)
        loose = sum(one.type is OpType.INFO for one in tries)
        recovered += min(max(taken - certain, 0), loose)
    unknown = "" if drains else "no drain has succeeded"
    if drains and left:
        unknown = f"{left} came in after the last drain had begun and never out"
    return judge(
        found,
        why_unknown=unknown,
        enqueued=sum(map(len, enqueues.values())),
        recovered=recovered,
    )


def _impossible(value: Any, lines: Sequence[int], tries: Sequence[Operation]) -> Iterator[Anomaly]:
    """`unexpected`: taken out before anybody had begun to put it in; `duplicate`: too often."""
    begun = [one.invoke.index for one in tries if one.type is not OpType.FAIL]
    for count, line in enumerate(sorted(lines), start=1):
        before = sum(index < line for index in begun)
        if count <= before:
            continue
        if before == 0 or len(begun) >= count:
            yield Anomaly("unexpected", {"value": value}, (line,))
        else:
            yield Anomaly("duplicate", {"value": value, "count": len(lines)}, (line,))
            return


def check_lock(history: Sequence[Op], *, guarded: bool = False) -> Verdict:
    """Judge locks by `acquire` (ends with a fencing token), `release` and `write` (a token).

    A lock granted later has a greater token, none is granted twice, and once a write with a token
    was accepted none with a lesser one is. `guarded`: the store that accepts writes knows the
    holder, so a write with a lesser token is refused as soon as a greater one is granted. Two
    holders at once are a note: a holder that was cut off cannot know.
    """
    mine = [one for one in operations(history) if one.type is not OpType.FAIL]
    granted = [one for one in mine if one.invoke.f == "acquire" and one.type is OpType.OK]
    writes = [one for one in mine if one.invoke.f == "write" and one.type is OpType.OK]
    found = [*_backwards("token-went-back", granted), *_backwards("stale-token-accepted", writes)]
    if guarded:
        found += _backwards("written-after-next-grant", writes, granted)
    tokens = Counter((hashable(one.invoke.key), one.value) for one in granted)
    for (key, token), count in tokens.items():
        if count > 1:
            shown = tuple(
                int(_end(one))
                for one in granted
                if (hashable(one.invoke.key), one.value) == (key, token)
            )
            found.append(Anomaly("token-granted-twice", {"key": key, "token": token}, shown))
    unknown = "" if granted else "no lock was granted"
    return judge(
        found,
        notes=_overlaps(mine),
        why_unknown=unknown,
        granted=len(granted),
        guarded_writes=len(writes),
    )


def _backwards(
    name: str, mine: Sequence[Operation], before: Sequence[Operation] | None = None
) -> Iterator[Anomaly]:
    """An operation that began after another (of `before`) had ended has a lesser token than it."""
    by_end = sorted(mine if before is None else before, key=_end)
    newest: dict[Any, tuple[int, int]] = {}
    ended = 0
    for one in sorted(mine, key=lambda operation: operation.invoke.index):
        while ended < len(by_end) and _end(by_end[ended]) < one.invoke.index:
            other = by_end[ended]
            key = hashable(other.invoke.key)
            newest[key] = max(newest.get(key, (-1, -1)), (other.value, int(_end(other))))
            ended += 1
        token, index = newest.get(hashable(one.invoke.key), (-1, -1))
        if one.value < token:
            detail = {"key": one.invoke.key, "token": one.value, "after": token}
            yield Anomaly(name, detail, (index, int(_end(one))))


def _overlaps(mine: Sequence[Operation]) -> Iterator[Anomaly]:
    moments: list[tuple[float, bool, Operation]] = []
    for one in mine:
        if one.invoke.f == "acquire" and one.type is OpType.OK:
            moments.append((_end(one), True, one))
        elif one.invoke.f == "release":
            moments.append((one.invoke.index, False, one))
    holders: dict[Any, dict[int | str, int]] = {}
    for at, takes, one in sorted(moments, key=lambda moment: moment[0]):
        mine_now = holders.setdefault(hashable(one.invoke.key), {})
        if takes:
            for other in mine_now.values():
                yield Anomaly("held-by-two", {"key": one.invoke.key}, (other, int(at)))
            mine_now[one.invoke.process] = int(at)
        else:
            mine_now.pop(one.invoke.process, None)


def check_bank(
    history: Sequence[Op], *, negative: bool = False, expected: int | None = None
) -> Verdict:
    """`transfer` between accounts and `read` of all balances ({account: balance}).

    All reads have the expected sum, or that of the first; without `negative` no balance is below 0;
    all reads show the same accounts, each with a balance. A read that failed may tell of which
    transfers it saw a half ({"halves": [number, ...]}): of one that has failed nothing may be seen.
    Source: Jepsen's `bank`.
    """
    mine = operations(history)
    reads = [one for one in mine if one.invoke.f == "read" and one.type is OpType.OK]
    found = []
    first: dict[Any, Any] = next((one.value for one in reads if one.value), {})
    accounts = set(first)
    total = sum(b for b in first.values() if b is not None) if expected is None else expected
    for read in reads:
        where = (int(_end(read)),)
        balances = read.value or {}
        known = {account: one for account, one in balances.items() if one is not None}
        if set(balances) != accounts:
            differing = sorted(set(balances) ^ accounts, key=repr)
            found.append(Anomaly("wrong-accounts", {"accounts": differing}, where))
        elif len(known) < len(balances):
            missing = sorted(set(balances) - set(known), key=repr)
            found.append(Anomaly("nil-balance", {"accounts": missing}, where))
        elif sum(known.values()) != total:
            detail = {"total": total, "found": sum(known.values())}
            found.append(Anomaly("wrong-total", detail, where))
        below = {account: balance for account, balance in known.items() if balance < 0}
        if below and not negative:
            found.append(Anomaly("negative-balance", {"balances": below}, where))
    found += _halves_of_failed(mine)
    unknown = "" if accounts else "no read has shown an account"
    return judge(found, why_unknown=unknown, reads=len(reads), total=total)


def _halves_of_failed(mine: Sequence[Operation]) -> Iterator[Anomaly]:
    transfers = {
        one.invoke.value["number"]: one
        for one in mine
        if one.invoke.f == "transfer" and one.type is OpType.FAIL and "number" in one.invoke.value
    }
    for read in mine:
        if read.invoke.f == "read" and read.type is OpType.FAIL and isinstance(read.value, dict):
            for number in read.value.get("halves", ()):
                if number in transfers:
                    where = tuple(
                        one.completion.index
                        for one in (transfers[number], read)
                        if one.completion is not None
                    )
                    yield Anomaly("aborted-transfer-read", {"number": number}, where)


FINAL_READS = ("final-poll",)
"""Functions of clients that read everything once, when the test is over and all is healed."""


def check_availability(history: Sequence[Op], *, outage_s_max: float | None = None) -> Verdict:
    """Return the counts of each function, and the longest time in which it was tried in vain.

    Unknown if one never succeeded, as a test that does nothing shows nothing. An outage is the time
    between two successes, or between the first try and the first success; longer than
    `outage_s_max` it is an anomaly. The reads after the test (`FINAL_READS`) have no outages.
    """
    counts: dict[str, Counter[str]] = {}
    last: dict[str, int] = {}
    tried: dict[str, bool] = {}
    longest: dict[str, tuple[int, int]] = {}
    clients = [op for op in history if op.by_client]
    for op in clients:
        of_f = counts.setdefault(op.f, Counter())
        of_f[op.type] += 1
        if op.type is OpType.INVOKE:
            # What is done late in a test was not missing before anybody tried it.
            last.setdefault(op.f, op.time)
            tried[op.f] = True
        elif op.type is OpType.OK:
            gap = op.time - last.get(op.f, op.time)
            if op.f not in FINAL_READS and tried.get(op.f):
                longest[op.f] = max(longest.get(op.f, (0, 0)), (gap, op.index))
            last[op.f], tried[op.f] = op.time, False
    outages = {f: round(gap / 1e9, 3) for f, (gap, _) in longest.items()}
    found = [
        Anomaly("outage", {"f": f, "seconds": outages[f]}, (longest[f][1],))
        for f in outages
        if outage_s_max is not None and outages[f] > outage_s_max
    ]
    silent = sorted(f for f, of_f in counts.items() if not of_f[OpType.OK])
    unknown = f"never succeeded: {', '.join(silent)}" if silent else ""
    unknown = unknown if counts else "no operation"
    shown = {f: dict(of_f) for f, of_f in counts.items()}
    return judge(found, why_unknown=unknown, counts=shown, longest_outage_s=outages)


def check_group(history: Sequence[Op]) -> Verdict:
    """`owned-twice`: two members were given one partition in the same generation.

    Of polls it is judged what stands beside the records: `["member", member id, generation,
    [partition, ...]]`, without more than the word where a member has nothing. Unknown if nobody had
    anything.
    """
    owners: dict[tuple[Any, Any], tuple[str, int]] = {}
    found = []
    for index, member_id, generation, keys in _memberships(history):
        for key in keys:
            owner, first = owners.setdefault((generation, key), (member_id, index))
            if owner != member_id:
                detail = {"key": key, "generation": generation, "members": [owner, member_id]}
                found.append(Anomaly("owned-twice", detail, (first, index)))
    generations = {generation for generation, _ in owners}
    members = {member_id for member_id, _ in owners.values()}
    unknown = "" if owners else "no member had a partition"
    return judge(found, why_unknown=unknown, generations=len(generations), members=len(members))


def _memberships(history: Sequence[Op]) -> Iterator[tuple[int, str, int, list[Any]]]:
    for op in history:
        if op.by_client and op.f == "poll" and op.type is OpType.OK:
            for micro in op.value or ():
                if micro[0] == "member" and len(micro) > 1:
                    yield op.index, micro[1], micro[2], micro[3]
