"""A quorum in the place of ZooKeeper: a Raft-replicated metadata log and its controller.

A node is a controller, a broker or both. Controllers replicate the metadata log and elect the
active one, which turns requests into records. Brokers replay the log into an image of the
cluster. What a broker does with it is a plug-in behind `raftctl.plugins`.

The packages are layers. Each imports only what stands below it:

    cli, localcluster              commands, clusters of processes
    node, kv                       one process: controller, broker runner, HTTP
    admin, client                  the HTTP interface of a node; a client of keys and values
    quorum, loader                 shells: the Raft driver; the image, snapshots, state hashes
    plugins, controller_channel    the broker contract; requests to the active controller
    controller                     operations become records: pure
    rpc, storage                   messages between nodes; the log and snapshots on disk
    config                         every configuration key, once
    metadata, raft                 records, image and requests; the Raft core: both pure
    runtime                        the one seam to files, clock, randomness and threads
    codec, ids, failures, timers   small tools
    optional_imports               what libraries need not load
    errors                         Kafka's error codes and the invariant

Must not know: any broker, any harness. Source: KIP-500, KIP-595, KIP-631, KIP-853; Ongaro's
thesis.
"""

__version__ = "0.1.0"
