"""Dataclass <-> MessagePack, driven by type hints that are resolved once per class.

An object of a tagged class becomes the array `[type id, field, ...]`; a dataclass within it becomes
an array of its fields, a UUID 16 bytes, an IntEnum its number, None and the primitives themselves.
Evolution is by position: a reader ignores trailing fields that it does not know and gives those
that are missing their defaults; so fields are only ever added at the end, with a default.

Bytes come from disks and peers, so unpacking checks every type and raises `CodecError`; packing
trusts the type checker. The converters are closures put together when the `Codec` is made: a class
of nothing but primitives costs one `attrgetter` to pack and one look at its types to unpack.
"""

from __future__ import annotations

import contextlib
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgpack

from raftctl.codec._plans import (
    CodecError,
    NotKnownError,
    Plans,
    Row,
    WrongTypeError,
    maker,
    pack_columns,
    plan_of_hint,
    unpack_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from raftctl.codec._plans import Convert

__all__ = [
    "Codec",
    "CodecError",
    "NotKnownError",
    "Row",
    "by_type_id",
    "maker",
    "pack_rows",
    "unpack_row",
    "unpack_rows",
]

T = TypeVar("T")

UNPACK_BYTES_MAX = 64 * 1024 * 1024
"""No record, message or payload is larger; more is refused before it is parsed."""

_LIMITS = {"use_list": False, "max_map_len": 0, "max_ext_len": 0}
"""Arrays become tuples. Nothing here is ever a map or an extension type."""
_COLUMNS_FROM = 8
"""How many objects of one class, one after the other, are many."""


class Codec(Generic[T]):
    """A table of tagged classes, fixed when it is made."""

    def __init__(self, classes: Mapping[int, type[T]], *, exact: bool = False) -> None:
        """Take type id -> class. Raises TypeError for a field of a type that cannot travel.

        With `exact` trailing fields that are not known are refused, not ignored.
        """
        plans = Plans(exact=exact)
        self._to_fields: dict[type, tuple[tuple[int], Convert | None]] = {}
        self._from_fields: dict[int, Convert] = {}
        self._columns: dict[int, Callable[[Sequence[Row]], list[Sequence[Any]]]] = {}
        self._from_columns: dict[int, Callable[[Sequence[Sequence[Any]]], list[Any]]] = {}
        self._type_ids: dict[type, int] = {}
        self._to_rows: dict[type, Callable[[Sequence[Any]], list[Row]]] = {}
        for type_id, cls in classes.items():
            if cls in self._to_fields:
                raise TypeError(f"{cls.__name__} has two type ids")
            plan = plan_of_hint(cls, plans)
            self._to_fields[cls] = ((type_id,), plan.pack)
            self._type_ids[cls] = type_id
            self._from_fields[type_id] = plan.unpack
            if plan.pack is not None:  # it has fields
                self._columns[type_id] = unpack_columns(cls, plans)
                self._from_columns[type_id] = maker(cls)
                self._to_rows[cls] = pack_columns(type_id, cls, plans)
        self._packer = msgpack.Packer()

    @classmethod
    def tagged(cls, *classes: type[T], exact: bool = False) -> Codec[T]:
        """A codec of classes that carry their id as `TYPE_ID: ClassVar[int]`."""
        return cls(by_type_id(classes), exact=exact)

    def to_row(self, value: T) -> Row:
        """`(type id, field, ...)`, ready for MessagePack. CodecError for an unknown class."""
        try:
            tag, pack = self._to_fields[type(value)]
        except KeyError:
            raise CodecError(f"{type(value).__name__} has no type id here") from None
        fields: Row = pack(value) if pack is not None else ()
        return tag + fields

    def to_rows(self, values: Iterable[T]) -> list[Row]:
        """What `to_row` makes of each.

        Many of one class, one after the other, are taken field by field, in half the time.
        """
        rows: list[Row] = []
        for cls, run in groupby(values, type):
            some, to_rows = [*run], self._to_rows.get(cls)
            if to_rows is None or len(some) < _COLUMNS_FROM:
                rows += [self.to_row(value) for value in some]
            else:
                rows += to_rows(some)
        return rows

    def from_row(self, row: object) -> T:
        """The object of an unpacked `(type id, field, ...)`. Raises CodecError."""
        if type(row) is not tuple or not row or type(row[0]) is not int:
            raise CodecError("not an array that begins with a type id")
        unpack = self._from_fields.get(row[0])
        if unpack is None:
            raise NotKnownError(f"unknown type id {row[0]}")
        value: T = unpack(row[1:])
        return value

    def from_rows(self, rows: Sequence[Row], begin: int = 0) -> list[T]:
        """The object of each unpacked `(..., type id, field, ...)`, its type id at place `begin`.

        Many of one class, one after the other, are looked at field by field instead of one by one,
        which takes less than half the time. Raises CodecError.
        """
        if len(rows) < _COLUMNS_FROM or min(map(len, rows)) <= begin:
            return [self.from_row(row[begin:]) for row in rows]
        made: list[T] = []
        for _, run in groupby(rows, itemgetter(begin)):
            made += self.from_run([*run], begin)
        return made

    def from_run(self, rows: Sequence[Row], begin: int = 0) -> list[T]:
        """Do what `from_rows` does for rows that all begin with the same type id."""
        type_id = rows[0][begin]
        columns = self._columns_of(type_id, rows, begin)
        if columns is not None:
            return self._from_columns[type_id](columns)
        return [self.from_row(row[begin:]) for row in rows]

    def columns_of(self, cls: type[T], rows: Sequence[Row]) -> list[Sequence[Any]] | None:
        """The values of each field of many unpacked objects of one class, fit for its objects.

        None if they are few or of another class, or if anything is unusual: `from_run` says what.
        """
        type_id = self._type_ids[cls]
        return self._columns_of(type_id, rows, 0) if rows and rows[0][0] == type_id else None

    def _columns_of(
        self, type_id: object, rows: Sequence[Row], begin: int
    ) -> list[Sequence[Any]] | None:
        if type(type_id) is not int or len(rows) < _COLUMNS_FROM or len(set(map(len, rows))) > 1:
            return None
        type_ids, *columns = [*zip(*rows, strict=True)][begin:]
        to_columns = self._columns.get(type_id)
        if to_columns is None or not {int}.issuperset(map(type, type_ids)):
            return None
        with contextlib.suppress(WrongTypeError):
            return to_columns(columns)
        return None

    def pack(self, value: T) -> bytes:
        """The bytes of one object. CodecError for a class not in the table."""
        packed: bytes = self._packer.pack(self.to_row(value))
        return packed

    def unpack(self, data: bytes) -> T:
        """The object that is all of `data`. Raises CodecError."""
        return self.from_row(unpack_row(data))

    def pack_all(self, values: Iterable[T]) -> bytes:
        """The bytes of several objects, one after the other."""
        return self.pack_rows(self.to_rows(values))

    def pack_rows(self, rows: Sequence[Row]) -> bytes:
        """The bytes of several rows as `to_row` makes them, one after the other."""
        return pack_rows(self._packer, rows)

    def unpack_all(self, data: bytes) -> Iterator[T]:
        """The objects that `data` holds one after the other. Raises CodecError on the way."""
        _check_size(data)
        unpacker = msgpack.Unpacker(max_buffer_size=UNPACK_BYTES_MAX, **_LIMITS)
        unpacker.feed(data)
        end = 0
        while True:
            try:
                row = unpacker.unpack()
            except msgpack.OutOfData:
                break
            except (ValueError, TypeError) as error:
                raise CodecError(f"malformed MessagePack: {error}") from error
            end = unpacker.tell()
            yield self.from_row(row)
        if end != len(data):
            raise CodecError(f"cut short: the object at byte {end} is not whole")

    def unpack_many(self, data: bytes, count: int) -> list[T]:
        """The `count` objects that are all of `data`, one after the other. Raises CodecError."""
        return self.from_rows(_tagged(unpack_rows(data, count)))

    def unpack_runs(self, data: bytes, count: int) -> Iterator[list[Row]]:
        """The `count` objects that are all of `data` as rows, those of one class in a list.

        Raises CodecError.
        """
        for _, run in groupby(_tagged(unpack_rows(data, count)), itemgetter(0)):
            yield [*run]


def by_type_id(classes: Iterable[type[T]]) -> dict[int, type[T]]:
    """The table of classes that carry `TYPE_ID`, to be joined with others."""
    table: dict[int, type[T]] = {}
    for cls in classes:
        type_id: int = vars(cls)["TYPE_ID"]
        if type_id in table:
            raise TypeError(f"type id {type_id}: {cls.__name__} and {table[type_id].__name__}")
        table[type_id] = cls
    return table


def unpack_row(data: bytes) -> object:
    """The one MessagePack value that is all of `data`, arrays as tuples. Raises CodecError."""
    _check_size(data)
    try:
        value: object = msgpack.unpackb(data, **_LIMITS)
    except (ValueError, TypeError) as error:
        raise CodecError(f"malformed MessagePack: {error}") from error
    return value


def pack_rows(packer: msgpack.Packer, rows: Sequence[Row]) -> bytes:
    """The bytes of several rows, one after the other: packed as one array, without its header."""
    packed: bytes = packer.pack(rows)
    return packed[len(_array_header(len(rows))) :]


def unpack_rows(data: bytes, count: int) -> Row:
    """The `count` MessagePack values that are all of `data`. Raises CodecError."""
    _check_size(data)
    try:
        rows: Row = msgpack.unpackb(_array_header(count) + data, **_LIMITS)
    except (ValueError, TypeError) as error:
        raise CodecError(f"malformed MessagePack, or not {count} objects: {error}") from error
    return rows


def _tagged(rows: Row) -> Row:
    """The rows, if all can begin with a type id."""
    if not {tuple}.issuperset(map(type, rows)) or not all(rows):
        raise CodecError("not an array that begins with a type id")
    return rows


def _array_header(count: int) -> bytes:
    """How MessagePack begins an array of so many values."""
    if count < 1 << 4:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def _check_size(data: bytes) -> None:
    if len(data) > UNPACK_BYTES_MAX:
        raise CodecError(f"{len(data)} bytes; at most {UNPACK_BYTES_MAX} are unpacked")
