"""Linearizability of registers on Spark.

A key is judged as a whole, so work is divided by `(history, key)`. Registers of whole numbers
go to the compiled search, all keys of a task in one call. It only decides that a key is
linearizable. Everything else goes to the checker of one process, key by key: it finds and
explains anomalies.

A key with very many operations is cut where no operation is under way. Tasks make a relation of
each part, from the values with which it may begin to those with which it may end, and the
driver composes them.

This package decides which way a key takes. It must not decide what linearizable means: that is
`jepsen.checkers.linearizable` and `jepsen.compiled.registers`.

Invariants:
* A key that a fast way finds invalid is judged again by the checker of one process.
* Every key gets exactly one verdict; beyond the limits it is unknown, never true.
* After an operation of unknown outcome that may still take effect, no key is cut.

Sources: Lowe, "Testing for linearizability"; Gibbons and Korach, "Testing shared memories".
`docs/decisions/0023-judging-registers.md` has the measurements behind the choice of ways.
"""

from jepsen.spark._search import Limits
from jepsen.spark.registers._linearizable import check_linearizable

__all__ = [
    "Limits",
    "check_linearizable",
]
