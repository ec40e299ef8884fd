"""Registers' operations as numbers, whole columns at a time, for the compiled search.

Where values have one spelling each their texts are equal exactly if they are: then a number for
each text is enough. Keys with other values, or other functions, are for others to judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jepsen.compiled.codes import CAS, FAILED_CAS, NEVER, READ, VALID, WRITE
from jepsen.history import OpType
from jepsen.history.table import ATOM, NULL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_SILENT, _UNFIT = -1, -2
"""Meanings besides those of `jepsen.compiled.codes`."""
_FAR = 1 << 40
"""Lines are fewer."""
_ONE_VALUE = ATOM.removeprefix("^(").removesuffix(")$")
_PAIR = rf"^\[(?P<a>{_ONE_VALUE}),(?P<b>{_ONE_VALUE})\]$"


def valid_keys(
    operations: pa.Table, initial: str, states: Mapping[str, str], *, lenient: bool, settle: int
) -> list[str]:
    """Keys that are certainly linearizable, of operations with the columns of `NEEDED`.

    Left out are those that have `settle` operations or more before a moment when nothing was under
    way. `initial` is the value of a register before its first operation, `states` that of some
    keys; both are text.
    """
    from jepsen.compiled.rows import judge_rows

    keys = operations["key"].combine_chunks().dictionary_encode()
    names = keys.dictionary.to_pylist()
    number = _integers(keys.indices)
    meant, a, b = _meanings(operations, lenient=lenient)
    begun = [(place, states[name]) for place, name in enumerate(names) if name in states]
    starts = pa.array([state for _, state in begun], pa.string())
    every = pa.concat_arrays([a, b, starts, pa.array([initial])])
    codes = every.dictionary_encode()
    code = _integers(codes.indices)
    is_atom = _flags(pc.match_substring_regex(codes.dictionary, ATOM))[code]
    count = len(number)
    fits = (meant != _UNFIT) & is_atom[:count] & is_atom[count : 2 * count]
    left = set(np.unique(number[~fits]).tolist())
    left |= {key for (key, _), fit in zip(begun, is_atom[2 * count : -1], strict=True) if not fit}
    if not is_atom[-1]:
        return []
    invoked, returned = _times(operations)
    rows = np.column_stack(
        [meant, code[:count], code[count : 2 * count], invoked, returned, number]
    )
    # What a register holds already it was written before all else.
    before = [[WRITE, code[2 * count + n], 0, -2, -1, key] for n, (key, _) in enumerate(begun)]
    table = np.concatenate([rows, np.array(before, np.int64).reshape(-1, 6)])
    found = judge_rows(bytearray(table.tobytes()), int(code[-1]))
    left |= _settling(number, meant, invoked, returned, operations, settle)
    return [names[key] for key, verdict, *_ in found if verdict == VALID and key not in left]


def _integers(array: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _meanings(
    operations: pa.Table, *, lenient: bool
) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """What operations do, and their values as text; as `jepsen.checkers.linearizable._registers`
    has it."""
    f, argument, result = (operations[name] for name in ("f", "argument", "result"))
    kind, error = operations["type"], operations["error"]
    ok, info = _flags(pc.equal(kind, str(OpType.OK))), _flags(pc.equal(kind, str(OpType.INFO)))
    failed = ~ok & ~info & _flags(pc.is_null(error))
    read, write, cas = (_flags(pc.equal(f, name)) for name in ("read", "write", "cas"))
    pairs = pc.extract_regex(argument.combine_chunks(), _PAIR)
    says = ~(lenient & _flags(pc.equal(result, NULL)))
    meant = np.select(
        [
            ~(read | write | cas) | (cas & ~_flags(pairs.is_valid())),
            read & ok & says,
            write & (ok | info),
            cas & (ok | info),
            cas & failed & (not lenient),
        ],
        [_UNFIT, READ, WRITE, CAS, FAILED_CAS],
        _SILENT,
    ).astype(np.int64)
    is_cas, is_read = pa.array(cas), pa.array(read)
    first = pc.if_else(is_cas, pc.struct_field(pairs, "a"), pc.if_else(is_read, result, argument))
    second = pc.if_else(is_cas, pc.struct_field(pairs, "b"), NULL)
    spoken = pa.array(meant >= 0)
    return meant, *(_texts(pc.if_else(spoken, one, NULL)) for one in (first, second))


def _flags(array: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.asarray(array).astype(bool)
    return found


def _texts(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _times(operations: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where operations begin and return; NEVER where it is not known."""
    unknown = pc.or_(
        pc.equal(operations["type"], str(OpType.INFO)), pc.is_null(operations["complete_index"])
    )
    returned = pc.if_else(unknown, NEVER, operations["complete_index"])
    return np.asarray(operations["invoke_index"]), np.asarray(returned)


def _settling(
    number: NDArray[np.int64],
    meant: NDArray[np.int64],
    invoked: NDArray[np.int64],
    returned: NDArray[np.int64],
    operations: pa.Table,
    settle: int,
) -> set[int]:
    """The keys with so many operations before a moment when nothing was under way."""
    order = np.lexsort((invoked, number))
    key, begin = number[order], invoked[order]
    opened = _flags(pc.is_null(operations["complete_index"]))
    says = (meant >= 0) | opened
    until = np.where(says, np.minimum(returned, _FAR - 1), -1)[order] + key * _FAR
    latest = np.maximum.accumulate(until)
    fresh: NDArray[np.bool_] = np.append(True, key[1:] != key[:-1])
    first = np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))
    place = np.arange(len(key)) - first
    quiet = (place >= settle) & (np.append(0, latest[:-1]) < begin + key * _FAR)
    return set(np.unique(key[quiet]).tolist())
