"""A harness that tests clusters from outside, as Jepsen does.

A test starts a cluster, lets clients work on it, injects faults, and records a history of every
operation. Checkers then decide from the history alone whether the cluster kept its promises.

The packages are layers. Each imports only what stands below it:

    cli                      commands
    spark                    checkers for histories larger than one process
    runner, report           one run from start to verdict; its HTML page
    simulator                a cluster in one process, in virtual time
    store                    folders of runs
    core                     the specification of a test, and its interpreter
    workloads, nemesis       client operations; faults
    environments             clusters behind one interface
    generator, log_files     the next operation; dumps and batches of logs
    checkers                 pure functions from a history to a verdict
    client, compiled         the client protocol; loops compiled by numba
    history                  operations and their file formats

Invariants: a checker reads histories, never a cluster. Workloads and the nemesis reach a
cluster through `environments.Environment` only, so one test runs simulated, on processes and on
any Kafka.

Source: Kingsbury's Jepsen, whose names for generators, faults and anomalies are kept.
"""
