"""Handlers for transactions: the requests of producers, of coordinators, and of operators.

    transactions       InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
    transaction_admin  WriteTxnMarkers, DescribeTransactions, ListTransactions, DescribeProducers

The handlers translate versions and error forms. The state of a transactional id is decided in
`broker.transactions`, the state of a producer in a partition's log.

Source: KIP-98 (transactions), KIP-664 (hanging transactions), KIP-890 (transaction version 2).
"""
