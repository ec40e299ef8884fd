"""Is each register's history linearizable? Just-in-time linearization, compiled.

Keys with unique writes are decided first, from the zones of their values (`judge_zones`). The
search is for all others.

A configuration is a value and a mask of the pending operations that have taken effect, each of
which has a slot. Where an operation returns, only configurations survive in which it has taken
effect; the others are extended by what is pending. Four things keep the set small:

* What only reads takes effect as soon as it is legal, and needs no slot if it is so everywhere.
* Of pending operations that are equal the one that returns first takes effect first.
* Of configurations that differ only in operations with unknown outcome the one that used fewer
  suffices.
* An operation with unknown outcome is forgotten as soon as nobody needs what it writes.

Sources: Lowe, "Testing for linearizability"; Wing and Gong; for zones Gibbons and Korach, "Testing
shared memories", theorem 4.1.
The searches of `jepsen.checkers.linearizable` explain more and hold more; what is too large here is
theirs.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from jepsen.compiled._compiler import compiled
from jepsen.compiled.codes import CAS, FAILED_CAS, INVALID, NEVER, OPEN, READ, VALID, WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    _Column: TypeAlias = "NDArray[np.int64]"
    _Columns: TypeAlias = "tuple[_Column, NDArray[np.int8], _Column, _Column, _Column, _Column]"
    _Table: TypeAlias = "NDArray[np.int64]"


CONFIGURATIONS_MAX = 4_096
_SLOTS_MAX = 62
_STEPS_MAX, _STEPS_EACH_MAX = 1 << 20, 256
"""So many configurations are looked at for a key, and for each of its operations: no key takes
much longer than others."""
_LINEAR_MAX = 16
"""Sets up to this size are looked through; larger ones have a table."""

_VALUE, _MASK, _TABLE, _ABOUT = 0, 1, 2, 3
"""Rows of a set of configurations, none of which suffices in place of another: values and masks;
places of these by hash, with the generation they belong to above 32 bits; and this about it all:"""
_SIZE, _FIXED, _GENERATION, _OVERFLOWED, _ROOM = 0, 1, 2, 3, 4
"""So many of the first stay what they are: whatever follows from them is known."""

_F, _A, _B, _INVOKED, _RETURNED, _EXPIRES = 0, 1, 2, 3, 4, 5
"""Columns of all operations, and rows of the pending ones by their slots. An operation with unknown
outcome expires where nobody needs any more what it writes."""
_EQUAL, _ONLY_READS, _GAINED, _ORDER, _STATUS = 6, 7, 8, 9, 10
"""More rows of the pending ones: the slots of equal ones that return earlier; whether it changes
nothing; the slots of it and of reads that are legal after it, where `_gain` was called; then the
slots by when their operations return, and this about all:"""
_COUNT, _OCCUPIED, _UNKNOWN, _EXPIRY = 0, 1, 2, 3
"""How many there are, masks of slots, and when the first expires."""
NOTHING = -1
_MIX_VALUE, _MIX_MASK = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9


def judge_table(
    starts: _Table, rows: _Table, initial: int, configurations_max: int
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return the verdict on each key, by number, and its greatest number of configurations.

    Key k's operations are rows `starts[k]` up to `starts[k + 1]`, sorted by when they begin: (f, a,
    b, invoked, returned, returned), of which the last column is used up. Values are any numbers:
    `a` is read, written or expected, and a CAS writes `b`. `returned`: NEVER if the outcome is
    unknown, so that the operation may take effect at any time after, or never. What begins where
    another returns is concurrent with it. `initial` is every key's first value. Operations that say
    nothing, as a write that failed, are left out by the caller.
    """
    places = max(2 * _LINEAR_MAX, 1 << (2 * configurations_max - 1).bit_length())
    sets: _Table = np.zeros((3, 4, places), np.int64)
    sets[:, _ABOUT, _ROOM] = configurations_max
    pending: _Table = np.zeros((11, _SLOTS_MAX + 2), np.int64)
    verdicts: NDArray[np.int8] = np.full(len(starts) - 1, OPEN, np.int8)
    peaks: _Table = np.empty(len(starts) - 1, np.int64)
    judge_zones(starts, rows, initial, verdicts)
    if (rows[:, _RETURNED] == NEVER).any():
        _expire(starts, rows, verdicts)
    first, second, seen = sets
    _judge(starts, rows, initial, first, second, seen, pending, verdicts, peaks)
    return verdicts, peaks


@compiled
def _judge(
    starts: _Table,
    rows: _Table,
    initial: int,
    first: _Table,
    second: _Table,
    seen: _Table,
    pending: _Table,
    verdicts: NDArray[np.int8],
    peaks: _Table,
) -> None:
    """Writes the verdict and the peak of each key that is not known to be valid."""
    for key in range(len(verdicts)):
        if verdicts[key] == VALID:
            peaks[key] = 1
            continue
        pending[_STATUS, _COUNT] = pending[_STATUS, _OCCUPIED] = pending[_STATUS, _UNKNOWN] = 0
        pending[_STATUS, _EXPIRY] = NEVER
        _clear(seen)
        _clear(first)
        _append(first, initial, pending[_STATUS, _OCCUPIED])
        verdicts[key], peaks[key] = _judge_key(
            rows, starts[key], starts[key + 1], first, second, seen, pending
        )


@compiled
def _judge_key(
    rows: _Table,
    begin: int,
    end: int,
    current: _Table,
    other: _Table,
    seen: _Table,
    pending: _Table,
) -> tuple[int, int]:
    """Goes through the history of one key: verdict, and configurations at most."""
    peak = 1
    steps_left = _STEPS_MAX + _STEPS_EACH_MAX * (end - begin)
    for row in range(begin, end + 1):
        now = rows[row, _INVOKED] if row < end else NEVER
        while pending[_STATUS, _COUNT] and pending[_RETURNED, pending[_ORDER, 0]] < now:
            slot = pending[_ORDER, 0]
            steps = _return(current, other, seen, pending, slot)
            if steps:
                current, other = other, current
            steps_left -= steps
            if steps_left < 0 or current[_ABOUT, _OVERFLOWED] or seen[_ABOUT, _OVERFLOWED]:
                return OPEN, peak
            if not current[_ABOUT, _SIZE]:
                return INVALID, peak
            peak = max(peak, current[_ABOUT, _SIZE])
            _release(pending, slot)
        if pending[_STATUS, _EXPIRY] < now:
            _forget(current, other, pending, now)
            current, other = other, current
        if row < end and not _begin(rows, row, now, current, pending):
            return OPEN, peak
    return VALID, peak


@compiled
def _begin(rows: _Table, row: int, now: int, current: _Table, pending: _Table) -> bool:
    """Gives the operation a slot if it needs one. Returns whether there was one for it."""
    f, a, b = rows[row, _F], rows[row, _A], rows[row, _B]
    returned, expires = rows[row, _RETURNED], rows[row, _EXPIRES]
    only_reads = _only_reads(f, a, b)
    if returned == NEVER and (only_reads or expires < now):
        return True
    if only_reads and _legal_everywhere(current, f, a):
        return True
    if pending[_STATUS, _COUNT] == _SLOTS_MAX:
        return False
    slot = _occupy(pending, f, a, b, returned, expires)
    if only_reads:
        _read_at_once(current, f, a, slot)
    return True


# --- operations with unknown outcome ----------------------------------------------------------


@compiled
def _expire(starts: _Table, rows: _Table, verdicts: NDArray[np.int8]) -> None:
    """For each operation with unknown outcome, when the last returns that needs what it writes.

    That one reads or expects the value. Where a CAS was seen to fail, any value may be needed.
    """
    for key in range(len(starts) - 1):
        begin, end = starts[key], starts[key + 1]
        unknown = 0
        for row in range(begin, end):
            unknown += rows[row, _RETURNED] == NEVER
        if not unknown or verdicts[key] == VALID:
            continue
        places = size_for(end - begin)
        values: _Table = np.empty(places, np.int64)
        until: _Table = np.full(places, NOTHING)
        failed = NOTHING
        for row in range(begin, end):
            f, needed, returned = rows[row, _F], rows[row, _A], rows[row, _RETURNED]
            if f == FAILED_CAS:
                failed = max(failed, returned)
            elif f == CAS or (f == READ and returned != NEVER):
                at = place_of(values, until, needed)
                values[at] = needed
                until[at] = max(until[at], returned)
        for row in range(begin, end):
            if rows[row, _RETURNED] == NEVER:
                written = rows[row, _B] if rows[row, _F] == CAS else rows[row, _A]
                rows[row, _EXPIRES] = max(until[place_of(values, until, written)], failed)


@compiled
def _forget(current: _Table, other: _Table, pending: _Table, now: int) -> None:
    """Frees the slots of what nobody needs any more; the configurations go to the other set."""
    gone = 0
    next_expiry = NEVER
    at = pending[_STATUS, _COUNT] - 1
    while at >= 0:
        slot = pending[_ORDER, at]
        if pending[_RETURNED, slot] == NEVER:
            if pending[_EXPIRES, slot] < now:
                gone |= 1 << slot
                _release(pending, slot)
            else:
                next_expiry = min(next_expiry, pending[_EXPIRES, slot])
        at -= 1
    pending[_STATUS, _EXPIRY] = next_expiry
    _clear(other)
    for one in range(current[_ABOUT, _SIZE]):
        mask = current[_MASK, one] & ~gone
        _add(other, current[_VALUE, one], mask, pending[_STATUS, _UNKNOWN])


# --- slots ------------------------------------------------------------------------------------


@compiled
def _occupy(pending: _Table, f: int, a: int, b: int, returned: int, expires: int) -> int:
    """Gives the operation a slot, and its place in the order."""
    slot = 0
    while pending[_STATUS, _OCCUPIED] >> slot & 1:
        slot += 1
    pending[_F, slot], pending[_A, slot], pending[_B, slot] = f, a, b
    pending[_ONLY_READS, slot] = _only_reads(f, a, b)
    pending[_RETURNED, slot], pending[_EXPIRES, slot], pending[_EQUAL, slot] = returned, expires, 0
    at = pending[_STATUS, _COUNT]
    while at and pending[_RETURNED, pending[_ORDER, at - 1]] > returned:
        pending[_ORDER, at] = pending[_ORDER, at - 1]
        at -= 1
    pending[_ORDER, at] = slot
    pending[_STATUS, _COUNT] += 1
    pending[_STATUS, _OCCUPIED] |= 1 << slot
    if returned == NEVER:
        pending[_STATUS, _UNKNOWN] |= 1 << slot
        pending[_STATUS, _EXPIRY] = min(pending[_STATUS, _EXPIRY], expires)
    for place in range(pending[_STATUS, _COUNT]):
        one = pending[_ORDER, place]
        if pending[_F, one] == f and pending[_A, one] == a and (f != CAS or pending[_B, one] == b):
            if place < at:
                pending[_EQUAL, slot] |= 1 << one
            elif place > at:
                pending[_EQUAL, one] |= 1 << slot
    return slot


@compiled
def _release(pending: _Table, slot: int) -> None:
    """Frees the slot."""
    kept = 0
    for place in range(pending[_STATUS, _COUNT]):
        one = pending[_ORDER, place]
        if one != slot:
            pending[_ORDER, kept] = one
            pending[_EQUAL, one] &= ~(1 << slot)
            kept += 1
    pending[_STATUS, _COUNT] = kept
    pending[_STATUS, _OCCUPIED] &= ~(1 << slot)
    pending[_STATUS, _UNKNOWN] &= ~(1 << slot)


# --- what the operations do -------------------------------------------------------------------


@compiled
def _only_reads(f: int, a: int, b: int) -> bool:
    """Whether the operation changes nothing, where it is legal."""
    return f in (READ, FAILED_CAS) or (f == CAS and a == b)


@compiled
def _legal(f: int, a: int, value: int) -> bool:
    """Whether what only reads is legal."""
    return (value != a) if f == FAILED_CAS else (value == a)


@compiled
def _legal_everywhere(current: _Table, f: int, a: int) -> bool:
    """Whether what only reads takes effect at once, however things stand: it needs no slot."""
    size: int = current[_ABOUT, _SIZE]
    one = 0
    while one < size and _legal(f, a, current[_VALUE, one]):
        one += 1
    return one == size


@compiled
def _read_at_once(current: _Table, f: int, a: int, slot: int) -> None:
    """What only reads takes effect where it is legal."""
    for one in range(current[_ABOUT, _SIZE]):
        if _legal(f, a, current[_VALUE, one]):
            current[_MASK, one] |= 1 << slot


@compiled
def _gain(pending: _Table) -> None:
    """Finds what comes with each operation that changes something."""
    for place in range(pending[_STATUS, _COUNT]):
        slot = pending[_ORDER, place]
        if pending[_ONLY_READS, slot]:
            continue
        after = pending[_B, slot] if pending[_F, slot] == CAS else pending[_A, slot]
        gained = 1 << slot
        for reader in range(pending[_STATUS, _COUNT]):
            one = pending[_ORDER, reader]
            if pending[_ONLY_READS, one] and _legal(pending[_F, one], pending[_A, one], after):
                gained |= 1 << one
        pending[_GAINED, slot] = gained


@compiled
def _return(current: _Table, survivors: _Table, seen: _Table, pending: _Table, slot: int) -> int:
    """Keeps the configurations in which the slot's operation is in effect, or makes others so.

    Returns how many it has looked at; if any, all that remain are among `survivors` now.
    """
    bit = 1 << slot
    size = current[_ABOUT, _SIZE]
    waiting = False
    for one in range(size):
        if not current[_MASK, one] & bit:
            waiting = True
            break
    if not waiting:
        for one in range(size):
            current[_MASK, one] ^= bit
        return 0
    unknown = pending[_STATUS, _UNKNOWN]
    _clear(survivors)
    _clear(seen)
    for one in range(size):
        value, mask = current[_VALUE, one], current[_MASK, one]
        if mask & bit:
            _add(survivors, value, mask ^ bit, unknown)
        else:
            _add(seen, value, mask, unknown)
    _gain(pending)
    head = 0
    while head < seen[_ABOUT, _SIZE]:
        value, mask = seen[_VALUE, head], seen[_MASK, head]
        head += 1
        seen[_ABOUT, _FIXED] = head
        _extend(value, mask, bit, pending, seen, survivors)
    return head


@compiled
def _extend(
    value: int, mask: int, bit: int, pending: _Table, seen: _Table, survivors: _Table
) -> None:
    """Lets each pending operation take effect that can and changes something or has to."""
    unknown = pending[_STATUS, _UNKNOWN]
    for place in range(pending[_STATUS, _COUNT]):
        slot = pending[_ORDER, place]
        if mask >> slot & 1 or pending[_ONLY_READS, slot] or ~mask & pending[_EQUAL, slot]:
            continue
        after = pending[_A, slot]
        if pending[_F, slot] == CAS:
            if value != after:
                continue
            after = pending[_B, slot]
        if value == after and unknown >> slot & 1:
            continue
        new = mask | pending[_GAINED, slot]
        if new & bit:
            _add(survivors, after, new ^ bit, unknown)
        else:
            _add(seen, after, new, unknown)


# --- sets of configurations -------------------------------------------------------------------


@compiled
def _clear(those: _Table) -> None:
    those[_ABOUT, _SIZE] = those[_ABOUT, _FIXED] = 0
    those[_ABOUT, _GENERATION] += 1
    those[_ABOUT, _OVERFLOWED] = 0


@compiled
def _add(those: _Table, value: int, mask: int, unknown: int) -> None:
    """Adds a configuration unless one suffices that used no more of the unknown operations.

    It takes the place of one that used more, unless that is fixed.
    """
    size = those[_ABOUT, _SIZE]
    if size <= _LINEAR_MAX:
        for one in range(size):
            if _suffices(those, one, value, mask, unknown):
                return
        if size < _LINEAR_MAX or size == those[_ABOUT, _ROOM]:
            _append(those, value, mask)
            return
        for one in range(size):
            at = _vacancy(those, those[_VALUE, one], those[_MASK, one] & ~unknown)
            those[_TABLE, at] = those[_ABOUT, _GENERATION] << 32 | one
    last = those.shape[1] - 1
    at = hashed(value, mask & ~unknown) & last
    while those[_TABLE, at] >> 32 == those[_ABOUT, _GENERATION]:
        if _suffices(those, those[_TABLE, at] & 0xFFFFFFFF, value, mask, unknown):
            return
        at = (at + 1) & last
    if _append(those, value, mask):
        those[_TABLE, at] = those[_ABOUT, _GENERATION] << 32 | size


@compiled
def _suffices(those: _Table, one: int, value: int, mask: int, unknown: int) -> bool:
    """Whether that member makes the new one unnecessary, if need be as it takes its place."""
    own = those[_MASK, one]
    if those[_VALUE, one] != value or (own ^ mask) & ~unknown:
        return False
    if not own & ~mask:
        return True
    if mask & ~own or one < those[_ABOUT, _FIXED]:
        return False
    those[_MASK, one] = mask
    return True


@compiled
def _append(those: _Table, value: int, mask: int) -> bool:
    """Adds a member that is not in it. Returns whether there was room."""
    size = those[_ABOUT, _SIZE]
    if size == those[_ABOUT, _ROOM]:
        those[_ABOUT, _OVERFLOWED] = 1
        return False
    those[_VALUE, size], those[_MASK, size] = value, mask
    those[_ABOUT, _SIZE] = size + 1
    return True


@compiled
def _vacancy(those: _Table, value: int, known: int) -> int:
    """The place in the table for a member that is not in it."""
    last: int = those.shape[1] - 1
    at = hashed(value, known) & last
    while those[_TABLE, at] >> 32 == those[_ABOUT, _GENERATION]:
        at = (at + 1) & last
    return at


# --- unique writes ----------------------------------------------------------------------------
#
# The operations on a value are its cluster. Where they do not all overlap, the value must stand
# from the first return of any of them to the last beginning (a forward zone); else it may stand
# for a moment between the last beginning and the first return (a backward zone). The history is
# linearizable if no two forward zones overlap and none holds a backward one.

_BEFORE = -NEVER
"""When the first value was written."""
_READ, _WRITTEN = 0, 1
"""What is known of a value."""
_BEGUN, _RETURN, _LAST = 0, 1, 2
"""Rows of clusters: when the write began; when first something returned; when last something
began."""


@compiled
def judge_zones(
    starts: _Column, rows: NDArray[np.int64], initial: int, verdicts: NDArray[np.int8]
) -> None:
    """Write VALID for each key that is certainly linearizable, and leave the others.

    Arguments are those of `jepsen.compiled.registers.judge_table`.
    """
    for key in range(len(verdicts)):
        if _is_linearizable(rows, starts[key], starts[key + 1], initial):
            verdicts[key] = VALID


@compiled
def _is_linearizable(rows: NDArray[np.int64], begin: int, end: int, initial: int) -> bool:
    """False also where this does not know.

    That is so if there is something else than reads and writes, or two writes are of one value.
    """
    for row in range(begin, end):
        if rows[row, _F] != READ and rows[row, _F] != WRITE:
            return False
    places = size_for(end - begin + 1)
    values: _Column = np.empty(places, np.int64)
    known: _Column = np.full(places, NOTHING)
    clusters: NDArray[np.int64] = np.empty((3, places), np.int64)
    at = _cluster(values, known, clusters, initial)
    known[at], clusters[_BEGUN, at], clusters[_RETURN, at] = _WRITTEN, _BEFORE, _BEFORE
    for row in range(begin, end):
        returned = rows[row, _RETURNED]
        if rows[row, _F] == READ and returned == NEVER:
            continue
        at = _cluster(values, known, clusters, rows[row, _A])
        if rows[row, _F] == WRITE:
            if known[at] == _WRITTEN:
                return False
            known[at], clusters[_BEGUN, at] = _WRITTEN, rows[row, _INVOKED]
        clusters[_RETURN, at] = min(clusters[_RETURN, at], returned)
        clusters[_LAST, at] = max(clusters[_LAST, at], rows[row, _INVOKED])
    return _fit(known, clusters)


@compiled
def _cluster(values: _Column, known: _Column, clusters: NDArray[np.int64], value: int) -> int:
    """The place of the value's cluster, which may be new."""
    at = place_of(values, known, value)
    if known[at] == NOTHING:
        values[at], known[at] = value, _READ
        clusters[_RETURN, at], clusters[_LAST, at] = NEVER, _BEFORE
    return at


@compiled
def _fit(known: _Column, clusters: NDArray[np.int64]) -> bool:
    """Whether all that was read had been written, and the zones are where they may be."""
    left: _Column = np.empty(len(known), np.int64)
    zones: _Column = np.empty(len(known), np.int64)
    count = 0
    for at in range(len(known)):
        # What was written with unknown outcome, and never read, need not have been written.
        if known[at] == NOTHING or clusters[_RETURN, at] == NEVER:
            continue
        if known[at] == _READ or clusters[_RETURN, at] < clusters[_BEGUN, at]:
            return False
        left[count], zones[count] = min(clusters[_RETURN, at], clusters[_LAST, at]), at
        count += 1
    until = _BEFORE
    for one in np.argsort(left[:count]):
        first_return, last_begin = clusters[_RETURN, zones[one]], clusters[_LAST, zones[one]]
        if max(first_return, last_begin) < until or (
            first_return < last_begin and left[one] < until
        ):
            return False
        if first_return < last_begin:
            until = last_begin
    return True


# --- rows in any order ------------------------------------------------------------------------

HISTORY_CONFIGURATIONS_MAX = 1_024
"""Beyond, of a history in memory, the searches in Python do better: they leave out more."""
SHARE_ROWS = 100_000
"""Fewer are not worth a thread of their own."""


class _Share(NamedTuple):
    """Keys that a thread judges."""

    begin: int
    end: int


def judge_rows(rows: bytearray, initial: int) -> list[tuple[int, int, int, int]]:
    """(key, verdict, its operations, configurations at most), by their first lines.

    `rows`: six int64 each (f, a, b, invoked, returned, key), keys being numbers from 0 on. A
    negative `f` says nothing, but its operation is counted.
    """
    table: Any = np.frombuffer(rows, np.int64).reshape(-1, _COLUMNS)
    f, a, b, invoked, returned, key = np.ascontiguousarray(table.T)
    columns = key, f.astype(np.int8), a, b, invoked, returned
    counts = np.bincount(key)
    firsts = np.full(len(counts), NEVER)
    np.minimum.at(firsts, key, invoked)
    threads = max(1, min(os.cpu_count() or 1, len(table) // SHARE_ROWS))
    judged = partial(_judged, columns, len(counts), initial)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(judged, _shares(counts, threads)))
    verdicts, peaks = (np.concatenate([one[at] for one in found]) for at in range(2))
    order = np.argsort(firsts)
    results = (order, verdicts[order], counts[order], peaks[order])
    return list(zip(*(column.tolist() for column in results), strict=True))


def _shares(counts: Any, number: int) -> Iterable[_Share]:
    """So many, of about as many rows each."""
    wanted = counts.sum() * np.arange(1, number) // number
    ends: Any = np.searchsorted(np.cumsum(counts), wanted, side="right")
    borders = [0, *ends.tolist(), len(counts)]
    return map(_Share, borders, borders[1:])


def _judged(columns: _Columns, keys: int, initial: int, share: _Share) -> tuple[Any, Any]:
    """The verdicts on these keys, and their peaks. Others may run meanwhile."""
    others: Any = np.ones(keys, np.bool_)
    others[share.begin : share.end] = False
    starts, own = sorted_rows(*columns, others)
    mine = starts[share.begin : share.end + 1]
    return judge_table(mine, own, initial, HISTORY_CONFIGURATIONS_MAX)


# --- tables of values by hash, with open addressing: their size is a power of two -----------------


@compiled
def hashed(value: int, known: int) -> int:
    """Return a number in which all bits of both have a part."""
    mixed = value * _MIX_VALUE ^ known * _MIX_MASK
    return mixed ^ mixed >> 29 ^ mixed >> 47


@compiled
def size_for(values: int) -> int:
    """Return the size of a table that is half full with so many values."""
    places = 2
    while places < 2 * values:
        places *= 2
    return places


@compiled
def place_of(values: NDArray[np.int64], about: NDArray[np.int64], value: int) -> int:
    """Return the place of the value in a table, or room for it, where `about` is NOTHING."""
    last = len(values) - 1
    at = hashed(value, value) & last
    while about[at] != NOTHING and values[at] != value:
        at = (at + 1) & last
    return at


# --- operations in order, and divided into parts --------------------------------------------------


_SMALL = 2**31


@compiled
def are_small(f: NDArray[np.int8], columns: tuple[NDArray[np.int64], ...], nil: int) -> bool:
    """Return whether all numbers have room in 32 bits, beside one for `nil`."""
    a, b, invoked, returned = columns
    for row in range(len(f)):
        if f[row] > FAILED_CAS:
            continue
        if not (a[row] == nil or -_SMALL < a[row] < _SMALL):
            return False
        if not (b[row] == nil or -_SMALL < b[row] < _SMALL):
            return False
        if invoked[row] >= _SMALL or _SMALL <= returned[row] < NEVER:
            return False
    return True


@compiled
def parted(
    key: NDArray[np.int64],
    f: NDArray[np.int8],
    columns: tuple[NDArray[np.int64], ...],
    key_part: NDArray[np.uint16],
    key_place: NDArray[np.int64],
    nil: tuple[int, int],
    ends: NDArray[np.int64],
    out: tuple[NDArray[np.int32], NDArray[np.int8], Any],
) -> None:
    """Write each row to its part's place in `out`, which ends at `ends[part]`.

    `columns`: (a, b, invoked, returned); `out`: (the place of the key in its part, f, a row of any
    whole numbers for each of the columns). Instead of when an operation returns stands how long it
    took, 0 if it never does; instead of `nil[0]` stands `nil[1]`. What says nothing is nothing but
    counted.
    """
    a, b, invoked, returned = columns
    out_key, out_f, out_columns = out
    ends[:] = 0
    for row in range(len(key)):
        ends[key_part[key[row]]] += 1
    total = 0
    for part in range(len(ends)):
        total, ends[part] = total + ends[part], total
    for row in range(len(key)):
        part = key_part[key[row]]
        at = ends[part]
        ends[part] += 1
        out_key[at], out_f[at] = key_place[key[row]], f[row]
        if f[row] > FAILED_CAS:
            out_columns[:, at] = 0
            continue
        out_columns[0, at] = nil[1] if a[row] == nil[0] else a[row]
        out_columns[1, at] = nil[1] if b[row] == nil[0] else b[row]
        out_columns[2, at] = invoked[row]
        out_columns[3, at] = 0 if returned[row] == NEVER else returned[row] - invoked[row]


_FEW = 32
"""Up to so many rows the plainest way to sort them is the quickest."""
_COLUMNS = 6


@compiled
def sorted_rows(
    key: _Column,
    f: NDArray[np.int8],
    a: _Column,
    b: _Column,
    invoked: _Column,
    returned: _Column,
    left: NDArray[np.bool_],
) -> tuple[_Column, NDArray[np.int64]]:
    """(starts, rows) for `jepsen.compiled.registers.judge_table`.

    Keys are numbers below `len(left)`. Without rows are keys that are `left` to others, and
    operations whose `f` is negative or beyond FAILED_CAS, which say nothing.
    """
    starts: _Column = np.zeros(len(left) + 1, np.int64)
    for row in range(len(key)):
        if READ <= f[row] <= FAILED_CAS and not left[key[row]]:
            starts[key[row] + 1] += 1
    for one in range(len(left)):
        starts[one + 1] += starts[one]
    rows: _Column = np.empty((starts[-1], _COLUMNS), np.int64)
    free = starts[:-1].copy()
    for row in range(len(key)):
        if READ <= f[row] <= FAILED_CAS and not left[key[row]]:
            place = rows[free[key[row]]]
            free[key[row]] += 1
            place[0], place[1], place[2] = f[row], a[row], b[row]
            place[3], place[4], place[5] = invoked[row], returned[row], returned[row]
    for one in range(len(left)):
        _sort(rows[starts[one] : starts[one + 1]])
    return starts, rows


@compiled
def _sort(rows: NDArray[np.int64]) -> None:
    """By when they begin. Where they do so already, as a rule, nothing is moved."""
    count = len(rows)
    if count > _FEW:
        for at in range(1, count):
            if rows[at - 1, _INVOKED] > rows[at, _INVOKED]:
                rows[:] = rows[np.argsort(rows[:, _INVOKED])]
                return
        return
    for begin in range(1, count):
        if rows[begin - 1, _INVOKED] <= rows[begin, _INVOKED]:
            continue
        moved = rows[begin].copy()
        at = begin
        while at and rows[at - 1, _INVOKED] > moved[_INVOKED]:
            rows[at] = rows[at - 1]
            at -= 1
        rows[at] = moved
