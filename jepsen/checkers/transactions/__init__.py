"""The checker of transactions: anomalies as cycles in a graph of dependencies.

A transaction appends unique values to lists and reads whole lists. The longest list that was
read of a key gives the order of its versions. From it follow the edges `ww`, `wr` and `rw`;
processes and real time add further edges. A cycle is an anomaly, named by its edges.

`list_append` infers the graph and finds anomalies that need no cycle: aborted reads,
intermediate reads, lost and duplicate values. `consistency` says which anomalies a consistency
model forbids. `Graph` and `find_cycles` serve every checker that infers dependencies, that of
Kafka included.

The package must not know how a database isolates transactions.

Invariants: an edge is added only if the history proves it. Of each component the shortest cycle
found of each kind is reported, unless a reported one implies it. The number of steps of a
search is bounded.

Sources: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
Observations"; Adya, "Weak Consistency"; Cerone and Gotsman, "Analysing Snapshot Isolation".
"""

from jepsen.checkers.transactions._cycles import find_cycles
from jepsen.checkers.transactions._graph import Edge, Graph, order_edges

__all__ = [
    "Edge",
    "Graph",
    "find_cycles",
    "order_edges",
]
