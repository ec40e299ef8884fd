"""Bugs planted into transactions: what ends them, what readers of committed records are told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.log.partition_log import PartitionLog
from broker.replication.partition import Partition
from broker.transactions import TransactionState
from broker.transactions._core import TransactionCore
from broker.types import CONSUMER
from tests.mutants.mutant import Patch, node_mutant

if TYPE_CHECKING:
    from typing import Unpack

    from broker.coordinator.core import Effect, Now
    from broker.log.segments import Limits
    from broker.log.segments.aborted_index import AbortedTransaction
    from broker.transactions import EndTransaction, ProducerGoesOn


def _to_high_watermark(replica: Partition, replica_id: int, *, read_committed: bool = False) -> int:
    is_consumer = replica_id == CONSUMER
    return replica.state.high_watermark if is_consumer else replica.log.log_end_offset


def _none_aborted(
    log: PartitionLog, offset: int, **limits: Unpack[Limits]
) -> list[AbortedTransaction]:
    return []


_end = TransactionCore._end
_loaded = TransactionCore.loaded


def _end_in_any_epoch(
    core: TransactionCore, request: EndTransaction, now: Now
) -> tuple[ProducerGoesOn, list[Effect]]:
    found = core.known.get(request.transactional_id)
    if found is not None and found.state is TransactionState.ONGOING:
        request = replace(request, producer_epoch=found.producer_epoch)
    return _end(core, request, now)


def _ask_for_nothing(core: TransactionCore, now: Now) -> list[Effect]:
    _loaded(core, now)
    return []


_ABORTED = "no_aborted_record_is_read"

TRANSACTION_MUTANTS = (
    node_mutant(
        "late_end_ends_the_next_transaction",
        "an EndTxn counts in whatever epoch its producer is",
        ("transaction_is_all_or_nothing",),
        Patch(TransactionCore, "_end", _end_in_any_epoch),
        scenario="late_end_comes_in_the_next_transaction",
    ),
    node_mutant(
        "next_coordinator_brings_no_markers",
        "who takes over does not ask for the markers of what was decided before",
        ("every_transaction_ends",),
        Patch(TransactionCore, "loaded", _ask_for_nothing),
        scenario="coordinator_dies_between_prepare_and_complete",
    ),
    node_mutant(
        "committed_reader_passes_open_transactions",
        "who reads committed records gets those of open transactions",
        (_ABORTED, "transaction_is_all_or_nothing"),
        Patch(Partition, "limit_for", _to_high_watermark),
        scenario="transactions_survive_faults",
    ),
    node_mutant(
        "aborted_transactions_are_not_told",
        "who reads committed records is not told which were aborted",
        (_ABORTED, "transaction_is_all_or_nothing"),
        Patch(PartitionLog, "aborted_in", _none_aborted),
        scenario="transactions_survive_faults",
    ),
)
