"""Generated histories with known anomalies, of any size.

A `Recipe` says how many keys, operations and anomalies of which kinds a history has. `write`
writes it as Parquet, with the expected findings beside it. Every operation takes effect at one
moment between its invocation and its completion, so a history without planted anomalies is
linearizable.

Anomalies are planted where nothing else can explain them, at most one in each stretch, so each
is found by itself. The list of them follows from the recipe without a look at the history.

Groups of keys are generated independently, each from the seed and the number of the group.

Invariants:
* The same recipe makes the same rows, however many processes write them.
* No planted anomaly depends on an operation of unknown outcome.

This door imports nothing: the command line reads `recipe` without numpy, and `write` needs
pyarrow but no Spark.
"""
