"""A soak: hours of mixed load with faults on one cluster, `python -m tests.bench.soak`.

Load, faults and verdicts are those of the harness (`jepsen`), in rounds. A round (`rounds`) is four
of its tests at once on the same cluster: records, transactions, a consumer group, registers. After
each round its histories are judged, its topics and keys are deleted, and the cluster rests.

Faults that end a process hit one controller and one broker only; the others live as long as the
soak. Each node notes its memory, open files and tasks (`node`), and `verdict` judges those of the
nodes that lived: memory is flat after the first half hour, and nothing is left over at rest.
"""
