"""Generators: immutable descriptions of the next operation of a test.

The interpreter asks a generator for its next operation. The answer is that operation and the
generator's successor, or PENDING (nothing at present), or None (nothing any more). The
generator is also informed of every invocation and completion.

`core` has the protocol, the context (time, free threads, randomness) and the simplest
generators. `combinators` builds generators from generators: limits, staggering, phases, mixes,
reserved threads. `Rounds` and `ConcurrentKeys` split operations over independent keys.

A generator must not know clients, clusters or clocks, and performs no I/O.

Invariants: a generator never changes. Equal generators with equal contexts give equal
operations, so a seed determines a simulated test. A thread is one worker, a number or NEMESIS;
the process that it plays changes after each operation that ended with `info`.

Source: Jepsen's `jepsen.generator`.
"""

from jepsen.generator._keys import ConcurrentKeys, Rounds

__all__ = [
    "ConcurrentKeys",
    "Rounds",
]
