"""Handlers for transactions: the requests of producers, of coordinators, and of operators.

`APIS` is the table of this family, from an api's key to its handler and its refusal.

    transactions       InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
    transaction_admin  WriteTxnMarkers, DescribeTransactions, ListTransactions, DescribeProducers

The handlers translate versions and error forms. They must not know the state of a transactional
id, which is decided in `broker.transactions`, nor that of a producer, which is part of a
partition's log.

Invariants:

- A transactional id is asked about at one coordinator: NOT_COORDINATOR at any other broker.
- A producer with an older epoch is fenced before anything of its request takes effect. Versions
  of a request that cannot name PRODUCER_FENCED get INVALID_PRODUCER_EPOCH.

Source: KIP-98 (transactions), KIP-664 (hanging transactions), KIP-890 (transaction version 2).
"""

from broker.apis.handler import Api, refuse_each
from broker.apis.transactional import _transaction_admin, _transactions
from broker.protocol.versions import ApiKey

APIS: dict[int, Api] = {
    ApiKey.INIT_PRODUCER_ID: Api(_transactions.handle_init, _transactions.refuse_init),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        _transactions.handle_add_partitions, _transactions.refuse_add_partitions
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Api(
        _transactions.handle_add_offsets, _transactions.refuse_add_offsets
    ),
    ApiKey.END_TXN: Api(_transactions.handle_end, _transactions.refuse_end),
    ApiKey.WRITE_TXN_MARKERS: Api(
        _transaction_admin.handle_markers, _transaction_admin.refuse_markers
    ),
    ApiKey.DESCRIBE_PRODUCERS: Api(
        _transaction_admin.handle_producers, _transaction_admin.refuse_producers
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(
        _transaction_admin.handle_describe, refuse_each("transactional_ids")
    ),
    ApiKey.LIST_TRANSACTIONS: Api(_transaction_admin.handle_list),
}

__all__ = [
    "APIS",
]
