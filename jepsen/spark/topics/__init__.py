"""Topics of a live cluster as a Spark data source, `format("raftctl-topic")`.

`source` is the data source: a table between two offsets, or a stream. It asks the cluster for its
offsets and reads pieces of partitions with librdkafka.

Options and their values are those of Spark's own Kafka source: `subscribe`, `startingOffsets`,
`endingOffsets`, `maxOffsetsPerTrigger`, `failOnDataLoss`, and any client option after `kafka.`.

A task reads one partition between two offsets that are fixed before it starts. A stream's
offset is a map from partition to the offset it has been read to; it needs no consumer group.

Invariants:
* A piece that is read again has the same records.
* A piece ends with its last record or where the client reports the end of the log, because a
  log may end in records that no consumer is shown (compacted, aborted or control records).

This door imports nothing: pyspark and confluent_kafka are needed by `source` alone.
"""
