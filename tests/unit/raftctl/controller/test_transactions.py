"""Transactions of the metadata log: which records may stand in one, and in which batches."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.metadata.codec import as_transaction, in_pieces, may_be_transaction, unpack_records
from raftctl.metadata.features import METADATA_VERSION_FEATURE, TRANSACTIONS_LEVEL
from raftctl.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KvRecord,
    KvSessionRecord,
    Record,
)
from tests.unit.raftctl.controller.cluster import Cluster

pytestmark = pytest.mark.req("C1")


@given(st.lists(st.integers(0, 40), min_size=1), st.integers(1, 200))
def test_pieces_are_the_records_in_order(lengths: list[int], bytes_max: int) -> None:
    records: list[Record] = [ConfigRecord(2, "t", "k" * length, None) for length in lengths]
    pieces = in_pieces(as_transaction(records), bytes_max)
    found = [unpack_records(piece.payload, piece.record_count) for piece in pieces]
    assert all(len(one.payload) <= bytes_max or one.record_count == 1 for one in pieces)
    first, *middle, last = [record for batch in found for record in batch]
    assert (first, last) == (BeginTransactionRecord(), EndTransactionRecord())
    assert middle == records


def test_keys_and_sessions_take_effect_with_their_batch() -> None:
    image = Cluster().image
    config = ConfigRecord(4, "", "k", "v")
    assert may_be_transaction(image, [config])
    for watched in (KvRecord("k", b""), KvSessionRecord(UUID(int=1), 1)):
        assert not may_be_transaction(image, [config, watched])


@pytest.mark.req("C11")
def test_a_lower_level_knows_no_transactions() -> None:
    cluster = Cluster()
    cluster.append([FeatureLevelRecord(METADATA_VERSION_FEATURE, TRANSACTIONS_LEVEL - 1)])
    assert not may_be_transaction(cluster.image, [ConfigRecord(4, "", "k", "v")])


def test_the_next_controller_aborts_first() -> None:
    cluster = Cluster()
    cluster.controller.committed(1)
    cluster.controller.renounce()
    image = cluster.controller.committed_image
    first = cluster.controller.claim(2, image, 0, in_transaction=True)
    assert first == [AbortTransactionRecord()]
