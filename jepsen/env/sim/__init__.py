"""The deterministic world: several nodes in one process, one event loop and virtual time.

Production code runs here unchanged: the loop gives it time and connections, `SimRuntime` gives it
disk, wall clock, randomness, worker threads and logs. A seed decides everything that is random, so
the same seed makes the same run. Import nothing here: `determinism.install` has to come first.
"""
