"""The demo's judge: what it must call lost, duplicated and out of order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.cli.local.demo._ledger import Ledger, ReadBack, Verdict, compare

if TYPE_CHECKING:
    from collections.abc import Iterable

Record = tuple[bytes, bytes]


def written(lines: Iterable[tuple[Record, int, int | None]]) -> Ledger:
    ledger = Ledger()
    for (key, value), partition, offset in lines:
        ledger.acknowledge(ledger.add(key, value), partition, offset)
    return ledger


def found(records: Iterable[tuple[int, int, Record]]) -> ReadBack:
    read = ReadBack()
    for partition, offset, (key, value) in records:
        read.add(partition, offset, key, value)
    return read


A1, A2, B1 = (b"a", b"1\n"), (b"a", b"2\n"), (b"b", b"1\n")


def test_everything_in_its_place() -> None:
    ledger = written([(A1, 0, 0), (B1, 1, 0), (A2, 0, 1)])
    assert compare(ledger, found([(0, 0, A1), (0, 1, A2), (1, 0, B1)])) == Verdict()


def test_gaps_between_offsets_are_no_loss() -> None:
    ledger = written([(A1, 0, 3), (A2, 0, 9)])
    assert compare(ledger, found([(0, 3, A1), (0, 9, A2)])).is_clean


def test_a_missing_record_is_lost() -> None:
    ledger = written([(A1, 0, 0), (A2, 0, 1), (B1, 4, 0)])
    assert compare(ledger, found([(0, 0, A1)])) == Verdict(lost=2)


def test_another_record_at_its_offset_is_a_loss_and_a_surplus() -> None:
    ledger = written([(A1, 0, 0)])
    assert compare(ledger, found([(0, 0, A2)])) == Verdict(lost=1, duplicated=1)


def test_a_record_nobody_claims_is_duplicated() -> None:
    ledger = written([(A1, 0, 0)])
    assert compare(ledger, found([(0, 0, A1), (0, 1, A1)])) == Verdict(duplicated=1)


def test_two_acknowledgements_of_one_record_lose_one_line() -> None:
    ledger = written([(A1, 0, 0), (A1, 0, 0)])
    assert compare(ledger, found([(0, 0, A1)])) == Verdict(lost=1, out_of_order=1)


def test_a_record_read_twice_is_duplicated() -> None:
    ledger = written([(A1, 0, 0)])
    assert compare(ledger, found([(0, 0, A1), (0, 0, A1)])) == Verdict(duplicated=1)


def test_order_within_a_key_only() -> None:
    ledger = written([(A1, 0, 5), (B1, 0, 4), (A2, 0, 3)])
    verdict = compare(ledger, found([(0, 3, A2), (0, 4, B1), (0, 5, A1)]))
    assert verdict == Verdict(out_of_order=1)


def test_a_key_in_two_partitions_is_out_of_order() -> None:
    ledger = written([(A1, 0, 0), (A2, 1, 7)])
    assert compare(ledger, found([(0, 0, A1), (1, 7, A2)])) == Verdict(out_of_order=1)


def test_a_line_acknowledged_without_offset_claims_an_equal_record() -> None:
    ledger = written([(A1, 0, None), (A2, 0, -1001)])
    assert compare(ledger, found([(0, 0, A1), (0, 1, A2)])).is_clean
    assert compare(ledger, found([(0, 0, A1)])) == Verdict(lost=1)


@pytest.mark.parametrize("records", [[], [(0, 0, A1)]])
def test_a_line_given_up_may_be_there_or_not(records: list[tuple[int, int, Record]]) -> None:
    ledger = Ledger()
    ledger.fail(ledger.add(*A1))
    assert compare(ledger, found(records)).is_clean
    assert (ledger.acknowledged, ledger.failed, ledger.settled, len(ledger)) == (0, 1, 1, 1)


def test_worse_takes_the_larger_of_each() -> None:
    assert Verdict(1, 0, 3).worse(Verdict(0, 2, 1)) == Verdict(1, 2, 3)
    assert str(Verdict()) == "lost 0, duplicated 0, out of order 0"


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.binary(max_size=1))), st.data())
def test_any_single_damage_is_noticed(lines: list[Record], data: st.DataObject) -> None:
    placed = [((key, value), key[0] % 2, index) for index, (key, value) in enumerate(lines)]
    ledger = written(placed)
    records = [(partition, offset, line) for line, partition, offset in placed]
    assert compare(ledger, found(records)).is_clean
    if not records:
        return
    index = data.draw(st.integers(0, len(records) - 1))
    assert compare(ledger, found(records[:index] + records[index + 1 :])) == Verdict(lost=1)
    partition, _, line = records[index]
    assert compare(ledger, found([*records, (partition, len(lines), line)])) == Verdict(
        duplicated=1
    )
