"""The command line of jepsen.

`commands` has the table of commands: `test`, `test-all` and `demo` run workloads under faults,
`check`, `check-servers` and `replicas` judge what was recorded, `convert`, `report` and `serve`
present it. `spark` judges what is too large for one process. `main` turns the outcome into an exit
status: 0 all valid, 1 something invalid, 2 something unknown and the rest valid, 130 interrupted,
254 bad arguments and nothing done, 255 a failure of the harness itself.

A verdict is never inferred here: commands print what the checkers return. A test of `test-all`
runs in a process of its own when `--jobs` is above one, so that a cluster that hangs ends only its
own test. Spark is imported by its own commands alone.
"""
