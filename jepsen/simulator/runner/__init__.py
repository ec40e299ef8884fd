"""Runs of seeds: one, many, in fork servers, and the shrinking of those that fail.

    determinism  makes an interpreter deterministic: clocks, random sources, hashes, collector
    run          runs one scenario with one seed in a prepared interpreter
    fork_server  runs each seed in a fork of an interpreter that has imported everything
    many         runs many seeds on all cores, and shrinks the first that fail

A scenario is `async def function(world: World) -> None`, named as `module:function`. A run
prints `seed N: ok, trace HASH` as its last line, or says that the seed failed and how to replay
it.

Shrinking takes faults and operations away while the run still fails. Whatever is taken away
changes the course of everything after it. So the smaller run may fail for another reason, but
it is a failure of the same seed and easier to read.

Invariants:
* A seed has a process of its own, and a fork makes the same trace as a cold interpreter.
* Nothing drawn while modules are imported has a part in a run.

This package imports nothing: `determinism.prepare` must run before libraries are imported that
keep a clock or a random source from their import on.
"""
