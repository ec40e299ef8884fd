"""The codec: round trips, evolution by position, and bytes that lie."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import ClassVar, NewType
from uuid import UUID

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.codec import Codec, CodecError, Columns, columns_of, maker, types_of
from raftctl.errors import ErrorCode
from raftctl.metadata import records
from raftctl.metadata.requests import cluster as requests

Count = NewType("Count", int)
INT64 = st.integers(-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Everything:
    TYPE_ID: ClassVar[int] = 1
    number: Count
    text: str
    data: bytes
    flag: bool
    ratio: float
    maybe: int | None
    uuid: UUID
    maybe_uuid: UUID | None
    error: ErrorCode
    numbers: tuple[int, ...]
    pair: tuple[str, UUID | None]
    inner: Inner
    inners: tuple[Inner, ...]
    maybe_inner: Inner | None = None
    maybe_numbers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Flat:
    TYPE_ID: ClassVar[int] = 2
    number: int
    text: str
    flag: bool = True
    more: tuple[int, ...] = field(default=(7,))


@dataclass(frozen=True, slots=True)
class Single:
    TYPE_ID: ClassVar[int] = 3
    uuid: UUID


@dataclass(frozen=True, slots=True)
class Nothing:
    TYPE_ID: ClassVar[int] = 4


Any_ = Everything | Flat | Single | Nothing
CODEC: Codec[Any_] = Codec.tagged(Everything, Flat, Single, Nothing)

inner = st.builds(Inner, st.text(), st.lists(st.uuids(), max_size=3).map(tuple))
everything = st.builds(
    Everything,
    INT64,
    st.text(),
    st.binary(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.none() | INT64,
    st.uuids(),
    st.none() | st.uuids(),
    st.sampled_from(ErrorCode),
    st.lists(INT64, max_size=4).map(tuple),
    st.tuples(st.text(), st.none() | st.uuids()),
    inner,
    st.lists(inner, max_size=3).map(tuple),
    st.none() | inner,
    st.none() | st.lists(INT64, max_size=3).map(tuple),
)
anything = st.one_of(
    everything,
    st.builds(Flat, INT64, st.text(), st.booleans(), st.lists(INT64).map(tuple)),
    st.builds(Single, st.uuids()),
    st.just(Nothing()),
)


@given(st.lists(anything, max_size=5))
def test_round_trip(values: list[Any_]) -> None:
    assert [CODEC.unpack(CODEC.pack(value)) for value in values] == values
    packed = CODEC.pack_all(values)
    assert packed == b"".join(CODEC.pack(value) for value in values)
    assert list(CODEC.unpack_all(packed)) == CODEC.unpack_many(packed, len(values)) == values


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_many_objects_are_packed_and_unpacked_at_once(count: int) -> None:
    values: list[Any_] = [Nothing()] * count
    packed = CODEC.pack_all(values)
    assert len(packed) == 2 * count
    assert CODEC.unpack_many(packed, count) == values
    for wrong in (count - 1, count + 1, 2**31 - 1, -1):
        with pytest.raises(CodecError):
            CODEC.unpack_many(packed, wrong)


@settings(deadline=None)
@given(st.lists(anything, min_size=1, max_size=3), st.integers(8, 12), st.integers(0, 2))
def test_many_rows_are_read_as_one_by_one(values: list[Any_], times: int, begin: int) -> None:
    sent = [(*range(begin), *CODEC.to_row(value)) for value in values * times]
    rows = msgpack.unpackb(msgpack.packb(sent), use_list=False)
    assert CODEC.from_rows(rows, begin) == values * times


@pytest.mark.parametrize(
    ("odd", "complaint"),
    [
        pytest.param((2, 1), "Flat", id="fields missing"),
        pytest.param((2, 1, b"", True, ()), "Flat", id="wrong type"),
        pytest.param((99,), "unknown type id 99", id="unknown class"),
        pytest.param((True, 1), "begins with a type id", id="no type id"),
        pytest.param((), "begins with a type id", id="nothing"),
    ],
)
@pytest.mark.parametrize("beside", [0, 20])
def test_what_is_wrong_among_many_rows_is_named(
    odd: tuple[object, ...], complaint: str, beside: int
) -> None:
    row = CODEC.to_row(Flat(1, "a"))
    assert CODEC.from_rows([row] * 20) == [Flat(1, "a")] * 20
    for rows in ([row] * beside + [odd], [odd] * (beside + 1)):
        with pytest.raises(CodecError, match=complaint):
            CODEC.from_rows(rows)


def test_many_objects_are_made_of_columns() -> None:
    flats = [Flat(number, "a", False, ()) for number in range(3)]
    assert maker(Flat)([range(3), ["a"] * 3, [False] * 3, [()] * 3]) == flats

    @dataclass(frozen=True)
    class WithoutSlots:
        number: int

    @dataclass(frozen=True, slots=True)
    class Checked:
        number: int

        def __post_init__(self) -> None:
            if self.number > 1:
                raise ValueError("too large")

    assert maker(WithoutSlots)([range(3)]) == [WithoutSlots(number) for number in range(3)]
    with pytest.raises(ValueError, match="too large"):
        maker(Checked)([range(3)])


@settings(deadline=None)
@given(st.lists(st.builds(Flat, INT64, st.text()), min_size=8, max_size=20), st.integers(0, 9))
def test_columns_are_the_objects_that_they_stand_for(flats: list[Flat], end: int) -> None:
    columns = Columns(Flat, columns_of(Flat, flats))
    assert list(columns) == flats
    assert list(columns[2:end]) == flats[2:end]
    assert (columns[3], columns[-1]) == (flats[3], flats[-1])
    assert columns_of(Flat, columns) is columns.fields
    assert types_of(columns) == types_of(flats) == {Flat}
    assert CODEC.pack_all(columns) == CODEC.pack_all(flats)
    heads = range(len(flats))
    assert CODEC.headed_rows(heads, columns) == CODEC.headed_rows(heads, flats)
    run = CODEC.from_run(msgpack.unpackb(msgpack.packb(CODEC.to_rows(flats)), use_list=False))
    assert isinstance(run, Columns)
    assert list(run) == flats


def test_many_rows_of_another_version_are_read_too() -> None:
    older, newer = (2, 1, "a"), (2, 1, "a", True, (7,), "a new field")
    assert CODEC.from_rows([older] * 20) == CODEC.from_rows([newer] * 20) == [Flat(1, "a")] * 20


def test_every_record_and_request_can_travel() -> None:
    for module in (records, requests):
        tagged = [cls for cls in vars(module).values() if hasattr(cls, "TYPE_ID")]
        assert len(tagged) > 5
        Codec.tagged(*tagged)


def test_layout_is_type_id_then_fields() -> None:
    assert msgpack.unpackb(CODEC.pack(Flat(5, "x"))) == [2, 5, "x", True, [7]]
    assert msgpack.unpackb(CODEC.pack(Nothing())) == [4]


def test_trailing_fields_are_ignored_and_missing_ones_take_defaults() -> None:
    assert CODEC.unpack(msgpack.packb([2, 5, "x"])) == Flat(5, "x", flag=True, more=(7,))
    newer = msgpack.packb([2, 5, "x", False, [], "new", {"key": 1}])
    with pytest.raises(CodecError):
        CODEC.unpack(newer)  # maps are never ours
    assert CODEC.unpack(msgpack.packb([2, 5, "x", False, [], "new", [1]])) == Flat(
        5, "x", flag=False, more=()
    )


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ([2, "5", "x"], "Flat.number: int expected, got str"),
        ([2, True, "x"], "Flat.number: int expected, got bool"),
        ([2, 5, b"x"], "Flat.text: str expected, got bytes"),
        ([2, 5], "Flat.text is missing"),
        ([2, 5, "x", 1], "Flat.flag: bool expected, got int"),
        ([2, 5, "x", True, [1, "2"]], "Flat.more: int expected, got str"),
        ([2, 5, "x", True, 1], "Flat.more: array expected, got int"),
        ([3, b"short"], "Single.uuid: 16 bytes"),
        ([99], "unknown type id 99"),
        ([True], "begins with a type id"),
        ([], "begins with a type id"),
        (5, "begins with a type id"),
        ([1, 1, "", b"", True, 0.5, None, bytes(16), None, 9999], "error: 9999 is no ErrorCode"),
    ],
)
def test_wrong_values_name_class_and_field(row: object, complaint: str) -> None:
    packed = msgpack.packb(row)
    if isinstance(row, list) and row and row[0] == 1:
        packed = msgpack.packb([*row, [], ["", None], [""], []])
    with pytest.raises(CodecError, match=complaint):
        CODEC.unpack(packed)


def test_wrong_nested_field_is_named() -> None:
    row = [1, 1, "", b"", True, 0.5, None, bytes(16), None, 0, [], ["", None], [5], []]
    with pytest.raises(CodecError, match=r"Inner.name: str expected"):
        CODEC.unpack(msgpack.packb(row))


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_codec_errors(data: bytes) -> None:
    for read in (CODEC.unpack, lambda data: list(CODEC.unpack_all(data))):
        with contextlib.suppress(CodecError):
            read(data)


@given(everything, st.data())
def test_damaged_bytes_raise_only_codec_errors(value: Everything, data: st.DataObject) -> None:
    packed = bytearray(CODEC.pack(value))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CodecError):
        CODEC.unpack(bytes(packed))


def test_cut_short_is_told() -> None:
    packed = CODEC.pack_all([Flat(1, "a"), Flat(2, "b")])
    found = CODEC.unpack_all(packed[:-1])
    assert next(found) == Flat(1, "a")
    with pytest.raises(CodecError, match="cut short"):
        next(found)


def test_a_class_without_an_id_or_a_type_that_cannot_travel_is_refused() -> None:
    @dataclass
    class Bad:
        TYPE_ID: ClassVar[int] = 9
        table: dict[str, int]

    with pytest.raises(TypeError, match=r"Bad.table: .* cannot travel"):
        Codec.tagged(Bad)
    with pytest.raises(TypeError, match="type id 2"):
        Codec.tagged(Flat, type("Twin", (), {"TYPE_ID": 2}))
    with pytest.raises(CodecError, match="Inner has no type id"):
        Codec[Inner | Flat].tagged(Flat).pack(Inner("x"))
