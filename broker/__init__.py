"""Brokers that speak the protocol of Apache Kafka, as plug-ins of the quorum.

A broker stores records and serves clients. It decides nothing about the cluster: partitions,
leaders and in-sync replicas come to it as metadata images, and changes go to the controller.

The packages, in the order in which a request meets them:

    server        connections: bytes in, frames out, limits
    envelopes     requests that nodes make for somebody else
    apis          one handler for each kind of request
    groups        consumer groups, and the offsets that they commit
    transactions  transactional ids, and the markers that end a transaction
    coordinator   the runtime that groups and transactions share
    replication   partitions: leaders, followers, high watermarks
    log           segments on disk
    protocol      field tables, codec, versions
    types         the nouns that these share

`plugin` puts the parts together (entry point `kafka`). `memory` is the same broker with its
files in memory. A package imports only packages below it in this list.

The broker sees the metadata, RPC, errors, configuration and runtime of `raftctl`, and the
contract of plug-ins. It must not know Raft, the controller's code, or the harness.
"""
