"""A cluster of real node processes on this machine, kept in one directory.

    <directory>/cluster.json                 the layout: ids, ports, overrides
    <directory>/<node>/node.properties       the configuration of the node
    <directory>/<node>/data/                 its log directory
    <directory>/<node>/node.log              its stdout and stderr
    <directory>/<node>/process.json          the process started last

`cluster` creates, starts, stops and restarts the nodes, together or one by one. It is built on
`layout` (pure: which nodes there are and what configures them), `ports`, `processes` (starts and
signals), `fork_server` (starts faster, by forking a process that has imported a node's code) and
`status` (asks the controllers).

Invariants:

* A process is known by its id and its start time; no signal is sent to any other.
* A directory belongs to one cluster. Its layout is written before the first node starts and
  never changes afterwards.
* A node that runs although this package did not start it is found by the lock of its log
  directory, and named, not signalled.

The package knows configuration and the HTTP status of controllers; it does not know the command
line or Kafka's protocol.
"""
