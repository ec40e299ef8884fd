"""Deterministic simulator: whole nodes in one process, on one event loop and in virtual time.

Production code and unmodified Kafka clients run here unchanged. The kernel gives them time, the
network connections, the disks files that a crash may lose, and each process its own `Runtime`.
A seed decides everything that is random, so the same seed makes the same run.

    kernel      event loop, processes, clocks, and the trace whose digest identifies a run
    network     TCP between nodes: latency, bandwidth, partitions, resets
    disk        files whose unsynced bytes and names a power cut may lose
    world       one world: starts, kills, pauses and restarts processes of nodes
    properties  safety properties, checked after every step of every node
    cluster     raftctl nodes in a world, laid out, formatted and started
    secured     logins and rules of such a cluster
    faults      the nemesis: a plan of faults as data, and how each is injected
    liveness    properties that scenarios check while a cluster runs
    runner      one seed, many seeds, shrinking of failing runs

`environment` offers a cluster to the Jepsen harness, whose tests are scenarios. `swarm` draws
the configuration of a run, and `cuts` leaves parts of a failing run out.

Invariants:
* A run depends on the seed and the program alone. Real time, addresses of objects, hash order
  and the order of imports take no part in it.
* Checking only reads: a run that is recorded or watched is the same run.

This package imports nothing: `runner.determinism.prepare` must come before the libraries that
it has to patch. Run it with `python -m jepsen.simulator`.

Sources: FoundationDB (Zhou et al., SIGMOD 2021, section 6) and TigerBeetle's VOPR for the
design; Groce et al., "Swarm Testing", ISSTA 2012.
"""
