"""Record batches: the format (magic 2) in which records travel and are stored.

- `record_batch`: the 61-byte header, and the checks that need no record decoded;
- `records`: the records inside a batch, opened only where the header is not enough;
- `compression`: the codecs, with bounds on what a batch may unpack to;
- `validation`: which produced batches a topic accepts, and the form in which it stores them;
- `markers`: control batches that end a transaction in one partition.

Decides whether bytes are a valid batch and which offsets it covers. Must not know files, logs
or partitions: everything here is a pure function of bytes and of a topic's configuration.

Invariants:

- a batch is opaque on the way from a producer to a consumer, unless its topic rewrites it;
- base offset and leader epoch precede the CRC, so that a log sets them without a new
  checksum;
- no batch is accepted that a reader could not decode: every record is walked once;
- a walk that may take long runs on a worker; the limits are the `AT_ONCE_*` constants.

Source: "Record Batch" and "Control Batches" in the Apache Kafka protocol documentation,
KIP-98 (transactions), KIP-467 (errors of single records), KIP-534 (delete horizon).
"""
