"""Operations on registers as arrays of small numbers, which travel as a few bytes each.

A piece of a history is taken apart into as many packages as there are tasks to judge it; all
operations on a key go to the same one. Values that are whole numbers are their own codes, and nil
has one that no such number is. A key with anything else is marked, for those who know all values.
Texts are looked at once for each that there is, not once a row: columns have dictionaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jepsen.compiled.codes import CAS, FAILED_CAS, NEVER, READ, WRITE
from jepsen.history.table import NULL, READ_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SILENT, OTHER = 4, 5
"""What an operation does besides what `jepsen.compiled.codes` has. SILENT: it says nothing, and is
only counted; OTHER: it is not for the compiled search."""
NIL = -(2**63)
"""The code of nil; other values have eighteen digits at most."""
COLUMNS = tuple(name for name in READ_COLUMNS if name != "process")
"""What packages are made of."""
_NUMBERS = ("key", "f", "a", "b", "invoked", "took")
PACKAGES = pa.schema(
    [
        pa.field("part", pa.int32(), nullable=False),
        pa.field("keys", pa.list_(pa.string()), nullable=False),
        pa.field("histories", pa.list_(pa.string()), nullable=False),
        *(pa.field(name, pa.binary(), nullable=False) for name in _NUMBERS),
    ]
)
"""A row a package. `keys` and `histories` are a text each for every key in it, `key` refers to
these by place (int32). `f` is int8; `a` is what is read, written or expected, `b` what a cas
writes, `invoked` the line at which it begins, and `took` how many lines later it returns, 0 if it
never does: all int32 if all numbers of a piece have room there, else int64."""
PACKAGES_SQL = (
    "part int, keys array<string>, histories array<string>, key binary, f binary, a binary, "
    "b binary, invoked binary, took binary"
)
_SMALL_NIL = -(2**31)
_NUMBER = f"-?[1-9][0-9]{{0,17}}|0|{NULL}"
_PAIR = rf"^\[(?P<one>{_NUMBER}),(?P<other>{_NUMBER})\]$"
_FUNCTIONS = {"read": READ, "write": WRITE, "cas": CAS}
_OK, _FAIL, _INFO = range(3)
_TYPES = {"ok": _OK, "fail": _FAIL, "info": _INFO}
Array = Any
"""Of numpy."""


class _Values(NamedTuple):
    """Texts as numbers, by row."""

    codes: Array
    known: Array
    """Whether the text is one of those that have a code."""


class Operations(NamedTuple):
    """A row an operation."""

    key: Array
    f: Array
    a: Array
    b: Array
    invoked: Array
    returned: Array


def packages(pieces: Iterable[pa.Table], parts: int) -> Iterator[pa.RecordBatch]:
    """Rows of `PACKAGES` of tables with the columns `COLUMNS`."""
    for piece in pieces:
        if piece.num_rows:
            yield _packages(piece, parts)


def _packages(piece: pa.Table, parts: int) -> pa.RecordBatch:
    keys, histories, found = _numbered(piece)
    key_part = _parts_of(keys, histories, parts)
    key_order = np.argsort(key_part, kind="stable")
    key_ends: Array = np.searchsorted(key_part[key_order], np.arange(parts + 1))
    keys, histories = keys.take(pa.array(key_order)), histories.take(pa.array(key_order))
    # The number that a key has among those of its part.
    place = np.empty_like(key_order)
    place[key_order] = np.arange(len(key_order)) - key_ends[key_part[key_order]]
    ends, columns = _parted(found, key_part, place, parts)
    arrays = [
        pa.array(np.arange(parts, dtype=np.int32)),
        *(
            pa.ListArray.from_arrays(key_ends.astype(np.int32), texts)
            for texts in (keys, histories)
        ),
        *(_cut(column, ends) for column in columns),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=PACKAGES)
    filled = np.diff(ends) > 0
    return batch if filled.all() else batch.filter(pa.array(filled))


def _cut(column: Array, ends: Array) -> pa.Array:
    """The bytes of each part, where they are."""
    offsets = pa.array((ends * column.itemsize).astype(np.int32)).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(column)], 0
    )


def _parted(
    found: Operations, key_part: Array, key_place: Array, parts: int
) -> tuple[Array, tuple[Array, ...]]:
    """(where each part begins, and the last ends; the columns of `PACKAGES` that are numbers)."""
    from jepsen.compiled.sorting import are_small, parted

    columns, rows = tuple(found[2:]), len(found.f)
    small = are_small(found.f, columns, NIL)
    kind, nil = (np.int32, _SMALL_NIL) if small else (np.int64, NIL)
    key: Array = np.empty(rows, np.int32)
    f: Array = np.empty(rows, np.int8)
    out: Array = np.empty((len(columns), rows), kind)
    ends: Array = np.zeros(parts + 1, np.int64)
    parted(found.key, found.f, columns, key_part, key_place, (NIL, nil), ends[1:], (key, f, out))
    return ends, (key, f, *out)


def _parts_of(keys: pa.Array, histories: pa.Array, parts: int) -> Array:
    """The part that each key belongs to, whoever asks; as small numbers, which are sorted fast."""
    began = {one: crc32(one.encode()) for one in pc.unique(histories).to_pylist()}
    both = zip(histories.to_pylist(), keys.to_pylist(), strict=True)
    hashes = [crc32(key.encode(), began[history]) for history, key in both]
    return (np.array(hashes, np.int64) % parts).astype(np.uint16)


def _numbered(piece: pa.Table) -> tuple[pa.Array, pa.Array, Operations]:
    """(the text of each key, that of its history, the operations)."""
    key, keys = coded(piece.column("key"))
    history, histories = coded(piece.column("history"))
    both, numbers = dense(history * len(keys) + key, len(histories) * len(keys))
    own_keys = keys.take(pa.array(both % len(keys)))
    own_histories = histories.take(pa.array(both // len(keys)))
    return own_keys, own_histories, Operations(numbers, *_operations(piece))


def dense(numbers: Array, below: int) -> tuple[Array, Array]:
    """(those that there are, the place among them of each): as `np.unique`, and seldom sorts."""
    if below > 2 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    there = np.bincount(numbers, minlength=below) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


def coded(column: pa.ChunkedArray) -> tuple[Array, pa.Array]:
    """(the number of each row's text, the texts)."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    one = column.unify_dictionaries().combine_chunks()
    texts, rows = one.dictionary.cast(pa.string()), one.indices
    if one.null_count:
        # What is missing is a text of its own, which means nothing.
        rows, texts = rows.fill_null(len(texts)), pa.concat_arrays([texts, pa.array([""])])
    return rows.to_numpy().astype(np.int64), texts


def _named(column: pa.ChunkedArray, names: dict[str, int], otherwise: int) -> Array:
    """The number of each row's name."""
    rows, texts = coded(column)
    return np.array([names.get(text, otherwise) for text in texts.to_pylist()], np.int8)[rows]


def _values(rows: Array, texts: pa.Array) -> _Values:
    codes, known = _codes(texts)
    return _Values(codes[rows], known[rows])


def _codes(texts: pa.Array) -> tuple[Array, Array]:
    """(the code of each text, whether it has one)."""
    known = pc.match_substring_regex(texts, f"^({_NUMBER})$")
    nil = pc.equal(texts, NULL)
    digits = pc.if_else(pc.and_not(known, nil), texts, "0")
    codes = pc.if_else(nil, pa.scalar(NIL, pa.int64()), pc.cast(digits, pa.int64()))
    return codes.to_numpy(), known.to_numpy(zero_copy_only=False)


def _pairs(rows: Array, texts: pa.Array) -> tuple[_Values, _Values]:
    """The two values of each text that is a list of these."""
    found = pc.extract_regex(texts, _PAIR)
    halves = [pc.fill_null(pc.struct_field(found, name), "") for name in ("one", "other")]
    expected, new = (_values(rows, half) for half in halves)
    return expected, new


def _operations(piece: pa.Table) -> tuple[Array, Array, Array, Array, Array]:
    """(f, a, b, invoked, returned) of each operation, as the model of a register sees it."""
    lenient = piece.column("lenient").to_numpy()
    argument, result = coded(piece.column("argument")), coded(piece.column("result"))
    f = _named(piece.column("f"), _FUNCTIONS, OTHER)
    how = _named(piece.column("type"), _TYPES, OTHER)
    ended = piece.column("complete_index").is_valid().to_numpy()
    how[~ended & (how <= _INFO)] = _INFO
    asked, answered = _values(*argument), _values(*result)
    expected, new = _pairs(*argument)
    read, cas = f == READ, f == CAS
    a = np.where(read, answered.codes, np.where(cas, expected.codes, asked.codes))
    known = np.where(read, answered.known, np.where(cas, expected.known & new.known, asked.known))
    failed = cas & (how == _FAIL) & ~lenient & piece.column("error").is_null().to_numpy()
    silent = (how == _FAIL) & ~failed
    silent |= (how == _INFO) & (read | (cas & known & (expected.codes == new.codes)))
    silent |= read & lenient & known & (a == NIL)
    invoked = piece.column("invoke_index").to_numpy()
    completed = pc.fill_null(piece.column("complete_index"), NEVER).to_numpy()
    returned = np.where(how == _INFO, NEVER, completed)
    other = (f == OTHER) | (how == OTHER) | (~known & ~silent) | (returned <= invoked)
    f = np.where(failed, FAILED_CAS, f)
    f = np.where(other, OTHER, np.where(silent, SILENT, f)).astype(np.int8)
    return f, a, np.where(cas, new.codes, 0), invoked, returned


def unpacked(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Array, pa.Array, Operations]:
    """(the text of each key, that of its history, the operations) of rows of `PACKAGES`.

    A key may be there several times, with a number for each package that has it.
    """
    own = list(batches)
    table = pa.Table.from_batches(own) if own else PACKAGES.empty_table()
    keys, histories = (_flat(table.column(name)) for name in ("keys", "histories"))
    key_counts = pc.list_value_length(table.column("keys")).to_pylist()
    rows = pc.sum(pc.binary_length(table.column("f"))).as_py() or 0
    f: Array = np.empty(rows, np.int8)
    columns: Array = np.empty((5, rows), np.int64)
    at = first = 0
    texts = zip(*(table.column(name) for name in _NUMBERS), strict=True)
    for count, (key, what, *numbers) in zip(key_counts, texts, strict=True):
        here = slice(at, at + len(what.as_buffer()))
        f[here] = _read(what, np.int8)
        columns[0, here] = _read(key, np.int32)
        columns[0, here] += first
        _widen(numbers, columns[1:, here])
        at, first = here.stop, first + count
    key, *others = columns
    return keys, histories, Operations(key, f, *others)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *(one.flatten() for one in column.chunks)])


def _read(text: pa.BinaryScalar, kind: Any) -> Array:
    return np.frombuffer(text.as_buffer(), kind)


def _widen(numbers: Sequence[pa.BinaryScalar], columns: Array) -> None:
    """Writes (a, b, invoked, returned) of a package."""
    small = len(numbers[0].as_buffer()) < columns[0].nbytes
    for number, column in zip(numbers, columns, strict=True):
        column[:] = _read(number, np.int32 if small else np.int64)
    if small:
        values = columns[:2]
        values[values == _SMALL_NIL] = NIL
    _, _, invoked, took = columns
    columns[3] = np.where(took == 0, NEVER, invoked + took)
