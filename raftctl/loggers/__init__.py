"""Loggers of a node: the parts of the program that log, each with a level that can change.

    LOGGERS            every logger by name, with what it writes
    Level              Apache Kafka's levels, from FATAL to TRACE
    LogLevels          the level of each logger of one node, and its loggers
    read_level         a level from its text

A line belongs to the logger whose name is bound as `logger`:

    log = runtime.log.bind(logger="broker.replication")

A logger without a level of its own has that of its parent, whose name is shorter by a word. The
parent of the shortest names is `root`, which always has a level. What binds no name belongs to
`root`.

Decides: names, levels, and which lines are written. Must not know: how a line is written, and who
may change a level.

Invariants: a level is in force from the next line on, also for loggers that were bound before. A
line that is not written costs a call that returns at once. Levels are of one node and of one run:
nothing stores them.

Source: KIP-412, Apache Kafka's RuntimeLoggerManager.
"""

from raftctl.loggers._levels import Level, LogLevels, read_level
from raftctl.loggers._names import LOGGERS, ROOT

__all__ = ["LOGGERS", "ROOT", "Level", "LogLevels", "read_level"]
