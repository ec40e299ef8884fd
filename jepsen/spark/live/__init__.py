"""Live judgement: histories that are judged while they are being written.

`watch` follows a stream of operations. After each micro-batch it reports the verdict on
everything so far, including operations that are still open. The verdict is that of `jepsen
check` on the lines up to there, except for anomalies that only the end of a history can show.

Where keys are judged one by one, only keys with new operations are. A task reads a checkpoint
of each from the folder of the last micro-batch: the states in which it may have been when
nothing was under way, and the operations since. It writes the next checkpoint into the folder
of this one. Other checkers judge the whole history each time.

This package decides what a micro-batch costs. It must not change what a checker would say.

Invariants:
* No file is ever changed, so a micro-batch that is repeated after a failure starts from the
  same checkpoint and counts nothing twice.
* A key without new operations costs nothing.
* An anomaly that later lines can explain, such as a late poll, is withdrawn when they come.
"""

from jepsen.spark.live._watch import Seen, watch

__all__ = [
    "Seen",
    "watch",
]
