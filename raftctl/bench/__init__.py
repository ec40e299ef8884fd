"""Benchmarks of clusters, as a user would measure them.

`produce`, `consume` and `end_to_end` drive the brokers of any Kafka cluster through librdkafka.
`quorum` puts keys into a quorum of controllers and, beside it, into etcd with the same keys,
sizes and phases; its load runs in processes of its own (`quorum_load`, `etcdload`), so that
measuring does not slow what is measured.

`figures` is the form of a result: the median of several turns, with all turns and the machine
beside it, so that a reader can judge the spread. Percentiles are exact, from the latency of every
record. A benchmark checks its own load: a record or put that is refused ends the run, because a
rate of errors is no throughput.

Nothing here knows the command line.
"""
