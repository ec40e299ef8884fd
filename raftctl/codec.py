"""Dataclasses as MessagePack, driven by type hints that are resolved once for each class.

`Codec(*classes)` is a table of tagged classes, fixed when it is made. An object of a tagged
class is the array `[type id, field, ...]`. A dataclass within it is an array of its fields, a
UUID 16 bytes, an IntEnum its number; None and the primitives are themselves.

The module decides the form on disk and on the wire, of values and of whole columns of them. It
must not know any record or message: the tables belong to those who define the classes.

Invariants:

- Evolution is by position: fields are added at the end, with a default. A reader ignores
  trailing fields it does not know and gives missing ones their defaults.
- Unpacking trusts nothing: every type is checked, and `CodecError` names the class and the
  field.
- A class of another release is `NotKnownError`, which is no damage.
- Packing trusts the type checker and checks nothing.

A plan packs and unpacks one value of a type, or a whole column of them. Plans are closures, put
together when the `Codec` is made: a class of nothing but primitives costs one `attrgetter` to
pack and one look at its types to unpack.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import math
import types
import typing
from collections import deque
from collections.abc import Sequence
from itertools import chain, groupby, product, repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload
from uuid import UUID

import msgpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Convert = Callable[[Any], Any]

__all__ = [
    "Codec",
    "CodecError",
    "Columns",
    "NotKnownError",
    "Row",
    "by_type_id",
    "columns_of",
    "maker",
    "pack_rows",
    "types_of",
]

Row = tuple[Any, ...]
"""An object as an array: its type id, if it has one, and its fields."""
T = TypeVar("T")

_PRIMITIVES = (int, str, bytes, bool)
_SCALARS = frozenset((int, str, bytes, types.NoneType))
"""Types of which equal values are the same value."""
_SHAPES_MAX = 64
"""Shapes kept of one class. A class with more has its fields checked one by one."""


class CodecError(Exception):
    """Bytes that do not hold what they should; the message names the class and the field."""


class NotKnownError(CodecError):
    """A class or a field of another release, which this one does not know."""


class WrongTypeError(Exception):
    """A value does not fit; the plan that knows the field turns it into a `CodecError`."""


class Plan(NamedTuple):
    """Conversion of values of one type; None where a value is packed as it is."""

    arrives: tuple[type, ...]
    """Types that unpacking gives for such a value; others are wrong or rare, and checked closer."""
    plain: bool
    """True if a value that has arrived as one of these needs no conversion."""
    pack: Convert | None
    unpack: Convert
    members: frozenset[type] = frozenset()
    """Types of the members of a tuple that is packed as it is."""


class Plans(dict[type, Plan]):
    """Those of dataclasses, by class."""

    def __init__(self, *, exact: bool = False) -> None:
        """With `exact` trailing fields that are not known are refused, not ignored."""
        super().__init__()
        self.exact = exact


def maker(cls: type[T]) -> Callable[[Sequence[Sequence[Any]]], list[T]]:
    """Make objects of a dataclass, given the values of each of its fields, all of one length.

    Slots are filled directly: the constructor of a frozen class takes three times as long.
    """
    names = [field.name for field in dataclasses.fields(cast("Any", cls))]
    slots = [vars(cls).get(name) for name in names]
    if hasattr(cls, "__post_init__") or not all(map(inspect.ismemberdescriptor, slots)):
        return lambda columns: list(map(cls, *columns))
    setters = [slot.__set__ for slot in slots if slot is not None]

    def make(columns: Sequence[Sequence[Any]]) -> list[T]:
        made = [object.__new__(cls) for _ in columns[0]]
        for setter, column in zip(setters, columns, strict=True):
            deque(map(setter, made, column), maxlen=0)
        return made

    return make


@functools.cache
def _maker_of(cls: type[Any]) -> Callable[[Sequence[Sequence[Any]]], list[Any]]:
    return maker(cls)


class Columns(Sequence[T]):
    """Objects of one dataclass, held field by field.

    Requests that come in hundreds are handed on so from the wire to the log and back: an object
    for each would cost more than what is done with it. An object is made when it is looked at.
    """

    __slots__ = ("cls", "fields")

    def __init__(self, cls: type[T], fields: Sequence[Sequence[Any]]) -> None:
        """`fields` has a column for each field of the class, all of one length."""
        self.cls = cls
        self.fields = fields

    def __len__(self) -> int:
        return len(self.fields[0])

    def __iter__(self) -> Iterator[T]:
        return iter(_maker_of(cast("Any", self.cls))(self.fields))

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Columns[T]: ...

    def __getitem__(self, index: int | slice) -> T | Columns[T]:
        some = [column[index] for column in self.fields]
        return Columns(self.cls, some) if isinstance(index, slice) else self.cls(*some)

    def __repr__(self) -> str:
        return f"Columns({self.cls.__name__}, {len(self)})"


def columns_of(cls: type[T], objects: Sequence[T]) -> Sequence[Sequence[Any]]:
    """Return the values of each field of objects that are all of one dataclass."""
    if isinstance(objects, Columns):
        return cast("Columns[T]", objects).fields
    names = [field.name for field in dataclasses.fields(cast("Any", cls))]
    return [[*map(attrgetter(name), objects)] for name in names]


def types_of(objects: Sequence[object]) -> set[type]:
    """Return the classes of the objects."""
    return {objects.cls} if isinstance(objects, Columns) else set(map(type, objects))


# --- plans ----------------------------------------------------------------------------------------


def plan_of_hint(hint: Any, plans: Plans) -> Plan:
    """Return the plan of a type hint; `plans` keeps those of dataclasses already seen."""
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _optional_plan(typing.get_args(hint), plans)
    if origin is tuple:
        return _tuple_plan(typing.get_args(hint), plans)
    if hint in _PRIMITIVES:
        return Plan((hint,), True, None, _exactly(hint))
    if hint is float:
        return Plan((float,), True, None, _to_float)
    if hint is UUID:
        return Plan((bytes,), False, attrgetter("bytes"), _to_uuid)
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        # MessagePack writes it as the number that it is.
        return Plan((int,), False, None, _to_member(hint))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint not in plans:
            plans[hint] = _dataclass_plan(hint, plans)
        return plans[hint]
    raise TypeError(f"{hint!r} cannot travel")


def _exactly(expected: type) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is not expected:  # not isinstance: a bool is no int here
            raise WrongTypeError(f"{expected.__name__} expected, got {type(value).__name__}")
        return value

    return check


def _to_float(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise WrongTypeError(f"float expected, got {type(value).__name__}")
    return float(value)


def _to_uuid(value: Any) -> UUID:
    if type(value) is not bytes or len(value) != 16:
        raise WrongTypeError("16 bytes of a UUID expected")
    return _uuid(value)


@functools.lru_cache(maxsize=1024)
def _uuid(value: bytes) -> UUID:
    """Few are named again and again, such as those of directories in each Fetch."""
    return UUID(bytes=value)


def _to_member(enumeration: type[enum.IntEnum]) -> Convert:
    members = {int(member): member for member in enumeration}

    def unpack(value: Any) -> Any:
        if type(value) is not int or value not in members:
            raise WrongTypeError(f"{value!r:.40} is no {enumeration.__name__}")
        return members[value]

    return unpack


def _optional_plan(choices: tuple[Any, ...], plans: Plans) -> Plan:
    others = [choice for choice in choices if choice is not type(None)]
    if len(others) != 1 or len(choices) != 2:
        raise TypeError(f"{choices} cannot travel: only `X | None` can")
    arrives, plain, pack_other, unpack_other, members = plan_of_hint(others[0], plans)
    pack = None if pack_other is None else _unless_none(pack_other)
    return Plan((*arrives, types.NoneType), plain, pack, _unless_none(unpack_other), members)


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _tuple_plan(hints: tuple[Any, ...], plans: Plans) -> Plan:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return _sequence_plan(plan_of_hint(hints[0], plans))
    items = [plan_of_hint(hint, plans) for hint in hints]
    packs = [item.pack or _identity for item in items]
    unpacks = [item.unpack for item in items]

    def pack(value: Row) -> Row:
        return tuple([convert(item) for convert, item in zip(packs, value, strict=True)])

    def unpack(value: Any) -> Row:
        if type(value) is not tuple or len(value) != len(unpacks):
            raise WrongTypeError(f"array of {len(unpacks)} expected")
        return tuple([convert(item) for convert, item in zip(unpacks, value, strict=True)])

    return Plan((tuple,), False, pack if any(item.pack for item in items) else None, unpack)


def _each(convert: Convert) -> Convert:
    return lambda value: tuple([convert(one) for one in value])


def _sequence_plan(item: Plan) -> Plan:
    arrives, plain, pack_item, unpack_item, _ = item
    expected = frozenset(arrives if plain else ())
    pack = None if pack_item is None else _each(pack_item)

    def unpack(value: Any) -> Row:
        if type(value) is not tuple:
            raise WrongTypeError(f"array expected, got {type(value).__name__}")
        if expected.issuperset(map(type, value)):
            return value
        return tuple([unpack_item(one) for one in value])

    return Plan((tuple,), False, pack, unpack, expected)


def _identity(value: Any) -> Any:
    return value


# --- dataclasses ----------------------------------------------------------------------------------


def _dataclass_plan(cls: type[Any], plans: Plans) -> Plan:
    plan_of = _field_plans(cls, plans)
    names, items = list(plan_of), list(plan_of.values())
    return Plan(
        (tuple,),
        False,
        _pack_fields(names, items),
        _unpack_fields(cls, names, items, exact=plans.exact),
    )


def _field_plans(cls: type[Any], plans: Plans) -> dict[str, Plan]:
    hints = typing.get_type_hints(cls)
    items = {}
    for field in dataclasses.fields(cls):
        try:
            items[field.name] = plan_of_hint(hints[field.name], plans)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}.{field.name}: {error}") from error
    return items


def _pack_fields(names: list[str], items: list[Plan]) -> Convert | None:
    if not names:
        return None
    if len(names) == 1:
        get_one, convert_one = attrgetter(names[0]), items[0].pack or _identity
        return lambda value: (convert_one(get_one(value)),)
    get_all: Convert = attrgetter(*names)
    conversions = [(index, item.pack) for index, item in enumerate(items) if item.pack is not None]
    if not conversions:
        return get_all

    def pack(value: Any) -> Row:
        fields = list(get_all(value))
        for index, convert in conversions:
            fields[index] = convert(fields[index])
        return tuple(fields)

    return pack


def _unpack_fields(cls: type[Any], names: list[str], items: list[Plan], *, exact: bool) -> Convert:
    shapes = _shapes(items)
    conversions = [(index, item.unpack) for index, item in enumerate(items) if not item.plain]
    unpacks = [item.unpack for item in items]
    required = sum(
        field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        for field in dataclasses.fields(cls)
    )

    def unpack(fields: Any) -> Any:
        if type(fields) is not tuple:
            raise WrongTypeError(f"array of {cls.__name__} expected")
        try:
            if tuple(map(type, fields)) in shapes:
                if not conversions:
                    return cls(*fields)
                converted = list(fields)
                for index, convert in conversions:
                    converted[index] = convert(converted[index])
                return cls(*converted)
            if len(fields) < required:
                raise CodecError(f"{cls.__name__}.{names[len(fields)]} is missing")
            if exact and len(fields) > len(unpacks):
                more = len(fields) - len(unpacks)
                raise NotKnownError(f"{cls.__name__} has {more} unknown field(s) at its end")
            # Not strict: fields may be missing at the end, or unknown ones follow.
            return cls(*[convert(field) for convert, field in zip(unpacks, fields, strict=False)])
        except WrongTypeError:
            raise _explain(cls, names, unpacks, fields) from None

    return unpack


def unpack_columns(cls: type[Any], plans: Plans) -> Callable[[Sequence[Row]], list[Sequence[Any]]]:
    """Unpack many objects, given field by field; WrongTypeError if there is anything unusual."""
    items = list(_field_plans(cls, plans).values())
    expected = [frozenset(item.arrives) for item in items]
    conversions = [(index, _whole(item)) for index, item in enumerate(items) if not item.plain]

    def unpack(columns: Sequence[Row]) -> list[Sequence[Any]]:
        if len(columns) != len(expected):
            raise WrongTypeError("not all of the fields that this version knows, or more")
        for types_expected, column in zip(expected, columns, strict=True):
            if not types_expected.issuperset(map(type, column)):
                raise WrongTypeError("a field of an unusual type")
        converted: list[Sequence[Any]] = list(columns)
        for index, convert in conversions:
            converted[index] = convert(columns[index])
        return converted

    return unpack


def _whole(item: Plan) -> Callable[[Row], Sequence[Any]]:
    """Unpack a column of values, each of which is of a type as which it may arrive."""
    members, unpack = item.members, item.unpack
    if members:

        def check(column: Row) -> Sequence[Any]:
            if members.issuperset(map(type, chain.from_iterable(filter(None, column)))):
                return column
            return [unpack(one) for one in column]

        return check
    if not _SCALARS.issuperset(item.arrives):

        def convert_each(column: Row) -> Sequence[Any]:
            if not any(column) and len(set(map(type, column))) == 1:
                return [unpack(column[0])] * len(column)  # all are the same nothing
            return [unpack(one) for one in column]

        return convert_each

    def convert(column: Row) -> Sequence[Any]:
        # The same values come again and again, as topic ids and error codes do.
        known = {one: unpack(one) for one in dict.fromkeys(column)}
        return [*map(known.__getitem__, column)]

    return convert


def pack_columns(
    type_id: int, cls: type[Any], plans: Plans
) -> Callable[[Sequence[Any]], list[Row]]:
    """Make the rows of many objects of one class."""
    plan_of = _field_plans(cls, plans)
    getters = [attrgetter(name) for name in plan_of]
    packs = [item.pack for item in plan_of.values()]
    if len(plan_of) > 1 and not any(packs):
        tag, get_all = (type_id,), attrgetter(*plan_of)
        return lambda values: [tag + row for row in map(get_all, values)]

    def pack(values: Sequence[Any]) -> list[Row]:
        columns: list[Iterable[Any]] = []
        for get, convert in zip(getters, packs, strict=True):
            column = [*map(get, values)]
            columns.append(column if convert is None else _each_once(convert, column))
        return [*zip(repeat(type_id), *columns)]

    return pack


def _each_once(convert: Convert, column: Sequence[Any]) -> Iterable[Any]:
    """Convert a column in which the same objects may stand many times, as topic ids do."""
    ids = [*map(id, column)]
    known = {key: convert(one) for key, one in dict(zip(ids, column, strict=True)).items()}
    return map(known.__getitem__, ids)


def _shapes(items: list[Plan]) -> frozenset[Row]:
    """Return the types of an object's fields from a writer of the same version."""
    if math.prod(len(item.arrives) for item in items) > _SHAPES_MAX:
        return frozenset()
    return frozenset(product(*[item.arrives for item in items]))


def _explain(cls: type, names: list[str], unpacks: list[Convert], fields: Row) -> CodecError:
    """Find the field that does not fit, on the way out, so that the way in need not know it."""
    for name, convert, field in zip(names, unpacks, fields, strict=False):
        try:
            convert(field)
        except WrongTypeError as error:
            return CodecError(f"{cls.__name__}.{name}: {error}")
    return CodecError(f"{cls.__name__}: fields do not fit")


# --- tables of tagged classes ---------------------------------------------------------------------

UNPACK_BYTES_MAX = 64 * 1024 * 1024
"""No record, message or payload is larger; more is refused before it is parsed."""

_LIMITS = {"use_list": False, "max_map_len": 0, "max_ext_len": 0}
"""Arrays become tuples. Nothing here is ever a map or an extension type."""
_COLUMNS_FROM = 8
"""Number of objects of one class, one after the other, that are packed by columns."""


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
        self._classes = classes
        self._type_ids: dict[type, int] = {}
        self._packs: dict[type, list[Convert | None]] = {}
        self._to_rows: dict[type, Callable[[Sequence[Any]], list[Row]]] = {}
        for type_id, cls in classes.items():
            if cls in self._to_fields:
                raise TypeError(f"{cls.__name__} has two type ids")
            plan = plan_of_hint(cls, plans)
            self._to_fields[cls] = ((type_id,), plan.pack)
            self._type_ids[cls] = type_id
            self._packs[cls] = [item.pack for item in _field_plans(cls, plans).values()]
            self._from_fields[type_id] = plan.unpack
            if plan.pack is not None:  # it has fields
                self._columns[type_id] = unpack_columns(cls, plans)
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
        """Return what `to_row` makes of each.

        Many of one class, one after the other, are taken field by field, in half the time.
        """
        if isinstance(values, Columns):
            return self._rows_of(values)
        rows: list[Row] = []
        for cls, run in groupby(values, type):
            some, to_rows = [*run], self._to_rows.get(cls)
            if to_rows is None or len(some) < _COLUMNS_FROM:
                rows += [self.to_row(value) for value in some]
            else:
                rows += to_rows(some)
        return rows

    def _rows_of(self, values: Columns[Any], *heads: Sequence[Any]) -> list[Row]:
        """Return the rows of objects, each with what the heads have for it in front."""
        tag, packs = self._type_ids[values.cls], self._packs[values.cls]
        columns = [
            column if pack is None else [*map(pack, column)]
            for pack, column in zip(packs, values.fields, strict=True)
        ]
        return [*zip(*heads, repeat(tag, len(values)), *columns, strict=True)]

    def headed_rows(self, heads: Sequence[Any], values: Sequence[T]) -> list[Row]:
        """Return `(head, type id, field, ...)` of each value. CodecError for an unknown class."""
        if isinstance(values, Columns):
            return self._rows_of(values, heads)
        pairs = zip(heads, values, strict=True)
        return [(head, *self.to_row(value)) for head, value in pairs]

    def from_row(self, row: object) -> T:
        """Return the object of an unpacked `(type id, field, ...)`. Raises CodecError."""
        if type(row) is not tuple or not row or type(row[0]) is not int:
            raise CodecError("not an array that begins with a type id")
        unpack = self._from_fields.get(row[0])
        if unpack is None:
            raise NotKnownError(f"unknown type id {row[0]}")
        value: T = unpack(row[1:])
        return value

    def from_rows(self, rows: Sequence[Row], begin: int = 0) -> list[T]:
        """Return the object of each unpacked `(..., type id, field, ...)`, type id at `begin`.

        Many of one class, one after the other, are looked at field by field instead of one by one,
        which takes less than half the time. Raises CodecError.
        """
        if len(rows) < _COLUMNS_FROM or min(map(len, rows)) <= begin:
            return [self.from_row(row[begin:]) for row in rows]
        made: list[T] = []
        for _, run in groupby(rows, itemgetter(begin)):
            made += self.from_run([*run], begin)
        return made

    def from_run(self, rows: Sequence[Row], begin: int = 0) -> Sequence[T]:
        """Do what `from_rows` does for rows that all begin with the same type id.

        Many are `Columns`.
        """
        type_id = rows[0][begin]
        columns = self._columns_of(type_id, rows, begin)
        if columns is not None:
            return Columns(self._classes[type_id], columns)
        return [self.from_row(row[begin:]) for row in rows]

    def columns_of(self, cls: type[T], rows: Sequence[Row]) -> list[Sequence[Any]] | None:
        """Return the values of each field of many unpacked objects of one class.

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
        """Return the bytes of one object. CodecError for a class not in the table."""
        packed: bytes = self._packer.pack(self.to_row(value))
        return packed

    def unpack(self, data: bytes) -> T:
        """Return the object that is all of `data`. Raises CodecError."""
        return self.from_row(unpack_row(data))

    def pack_all(self, values: Iterable[T]) -> bytes:
        """Return the bytes of several objects, one after the other."""
        return self.pack_rows(self.to_rows(values))

    def pack_rows(self, rows: Sequence[Row]) -> bytes:
        """Return the bytes of several rows as `to_row` makes them, one after the other."""
        return pack_rows(self._packer, rows)

    def unpack_all(self, data: bytes) -> Iterator[T]:
        """Yield the objects that `data` holds one after the other. Raises CodecError."""
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
        """Return the `count` objects that are all of `data`. Raises CodecError."""
        return self.from_rows(_tagged(unpack_rows(data, count)))

    def unpack_runs(self, data: bytes, count: int) -> Iterator[list[Row]]:
        """Return the `count` objects that are all of `data` as rows, those of one class in a list.

        Raises CodecError.
        """
        for _, run in groupby(_tagged(unpack_rows(data, count)), itemgetter(0)):
            yield [*run]


def by_type_id(classes: Iterable[type[T]]) -> dict[int, type[T]]:
    """Return the table of classes that carry `TYPE_ID`, to be joined with others."""
    table: dict[int, type[T]] = {}
    for cls in classes:
        type_id: int = vars(cls)["TYPE_ID"]
        if type_id in table:
            raise TypeError(f"type id {type_id}: {cls.__name__} and {table[type_id].__name__}")
        table[type_id] = cls
    return table


def unpack_row(data: bytes) -> object:
    """Return the one MessagePack value in `data`, arrays as tuples. Raises CodecError."""
    _check_size(data)
    try:
        value: object = msgpack.unpackb(data, **_LIMITS)
    except (ValueError, TypeError) as error:
        raise CodecError(f"malformed MessagePack: {error}") from error
    return value


def pack_rows(packer: msgpack.Packer, rows: Sequence[Row]) -> bytes:
    """Return the bytes of several rows: those of one array, without its header."""
    packed: bytes = packer.pack(rows)
    return packed[len(_array_header(len(rows))) :]


def unpack_rows(data: bytes, count: int) -> Row:
    """Return the `count` MessagePack values that are all of `data`. Raises CodecError."""
    _check_size(data)
    try:
        rows: Row = msgpack.unpackb(_array_header(count) + data, **_LIMITS)
    except (ValueError, TypeError) as error:
        raise CodecError(f"malformed MessagePack, or not {count} objects: {error}") from error
    return rows


def _tagged(rows: Row) -> Row:
    """Return the rows, if all can begin with a type id."""
    if not {tuple}.issuperset(map(type, rows)) or not all(rows):
        raise CodecError("not an array that begins with a type id")
    return rows


def _array_header(count: int) -> bytes:
    """Return the header of a MessagePack array of so many values."""
    if count < 1 << 4:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def _check_size(data: bytes) -> None:
    if len(data) > UNPACK_BYTES_MAX:
        raise CodecError(f"{len(data)} bytes; at most {UNPACK_BYTES_MAX} are unpacked")
