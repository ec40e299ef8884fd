"""`raftctl kv`: keys, locks and elections on the metadata log.

Reads are linearizable and writes may be guarded by the version of the key or the fencing token
of a lock. A write that ends in REQUEST_TIMED_OUT has an unknown outcome. `lock` and `elect` run
a command while they hold the lock and stop it when the lock is lost.
"""
