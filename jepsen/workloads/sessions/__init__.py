"""Sessions: one producer and one consumer of a process, by either Kafka client library.

`LogSession` is the seam: assign, subscribe, poll, send, commit, and transactions. `session` and
`transactional` make one with aiokafka or librdkafka, as the options say. `create_topic` creates
the topic of a test.

aiokafka runs on the event loop, and so in every environment. librdkafka blocks on threads of
its own and cannot take part in the simulation.

A session must not know histories or checkers.

Invariants: `SessionError` says whether the outcome is certain. A session that was fenced, or
whose transaction ended unknown, is closed rather than reused.
"""

from jepsen.workloads.sessions._base import (
    REQUEST_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Batch,
    LogSession,
    SessionError,
)
from jepsen.workloads.sessions._factory import create_topic, session, transactional

__all__ = [
    "REQUEST_TIMEOUT_MS",
    "SESSION_TIMEOUT_MS",
    "Batch",
    "LogSession",
    "SessionError",
    "create_topic",
    "session",
    "transactional",
]
