"""Bugs planted into transactions: what readers of committed records are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.partition_log import PartitionLog
from broker.replication.hosted import HostedPartition
from broker.types import CONSUMER
from tests.mutants.mutant import Patch, node_mutant

if TYPE_CHECKING:
    from typing import Unpack

    from broker.log.aborted_index import AbortedTransaction
    from broker.log.reading import Limits


def _to_high_watermark(
    hosted: HostedPartition, replica_id: int, *, read_committed: bool = False
) -> int:
    is_consumer = replica_id == CONSUMER
    return hosted.rules.high_watermark if is_consumer else hosted.log.log_end_offset


def _none_aborted(
    log: PartitionLog, offset: int, **limits: Unpack[Limits]
) -> list[AbortedTransaction]:
    return []


_ABORTED = "no_aborted_record_is_read"

TRANSACTION_MUTANTS = (
    node_mutant(
        "committed_reader_passes_open_transactions",
        "who reads committed records gets those of open transactions",
        (_ABORTED, "transaction_is_all_or_nothing"),
        Patch(HostedPartition, "limit_for", _to_high_watermark),
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
