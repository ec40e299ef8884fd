"""Batches and records of logs, read from files or from dumps of them.

`batch_headers` reads record batches from bytes. `read_dump` reads what `raftctl log dump` or
Kafka's `kafka-dump-log` prints, and recognizes the form line by line.

The package follows the published format, not a broker's code, so a bug of the broker stays
visible. It must not import raftctl or broker, and it decides nothing about correctness: the
checkers of `jepsen.checkers.replication` compare what is read here.

Invariants: a batch that is cut short at the end is not returned. Whether a batch's checksum
matches is for its caller to ask (`BatchHeader.is_right`).

Source: Kafka's record batch, magic 2 (KIP-98).
"""

from jepsen.log_files._batches import batch_headers
from jepsen.log_files._dumps import held_of, read_dump

__all__ = [
    "batch_headers",
    "held_of",
    "read_dump",
]
