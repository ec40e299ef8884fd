"""Commands for nodes on this machine.

`cluster` (`up`, `down`, `status`) and `restart` keep a cluster in one directory, `start` runs
one node in the foreground, `demo` runs the demo of the harness.
`fork_server` is the process from which `up` forks nodes. Processes are known by id and start
time, so that no command signals a process that merely got the same id.
"""
