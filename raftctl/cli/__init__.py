"""The command line of raftctl.

The path of a module is the path of its command: `raftctl topics` is `kafka/topics.py`, `raftctl
storage format` is in `offline/storage.py`. The packages are the ways a command reaches a
cluster:

* `kafka` asks brokers over Kafka's protocol, so its commands work on any Kafka cluster;
* `clients` produces and consumes records, and measures clusters by doing so;
* `quorum` and `kv` ask the controllers;
* `offline` reads and formats the files of nodes that do not run;
* `local` starts and stops nodes of this machine.

`main` turns errors into one line and an exit status: 0 done, 1 failed, 2 bad input and nothing
changed, 130 interrupted. `app` puts the commands together and imports only the module of the
command that was named, because importing all takes longer than most commands run. For the same
reason no package of commands imports anything. `reference` writes `docs/reference`.

Results go to stdout, as a table or as JSON, everything else to stderr. An error names the
option or key and the remedy. No other package of the product imports this one.
"""
