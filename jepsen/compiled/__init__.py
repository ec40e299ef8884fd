"""Inner loops over arrays of integers, compiled by numba where it is installed.

    codes         what the numbers in the arrays mean; needs no numba
    registers     linearizability of registers: operations in order, unique writes, a search
    text          fields of lines, sends and polls in the text of histories

Modules know arrays alone and import nothing of the harness. A caller asks `available` first and
imports a module only then, because all but `codes` import numba.

Compiled code only reports what is certain. Whatever it leaves open, and every explanation of an
anomaly, is for the searches in Python (`jepsen.checkers`).

Invariants:
* For every input the answer is that of the Python code, or "open".
* Codes never change: numba caches what it has compiled with them.

Sources: Lowe, "Testing for linearizability", 2017; Gibbons and Korach, "Testing shared
memories", 1997, theorem 4.1.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def available() -> bool:
    """Return whether numba is installed: the extra `fast`, which `spark` includes."""
    return find_spec("numba") is not None
