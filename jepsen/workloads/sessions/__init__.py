"""Sessions: one producer and one consumer of a process, by either Kafka client library.

`LogSession` is the seam: assign, subscribe, poll, send, commit, and transactions. `session` and
`transactional` make one with aiokafka or librdkafka, as the options say. `create_topic` creates
the topic of a test.

aiokafka runs on the event loop, and so in every environment. librdkafka blocks on threads of
its own and cannot take part in the simulation.

`rules_of` has what the user of sessions must be allowed on a secured cluster.

A session must not know histories or checkers.

Invariants: `SessionError` says whether the outcome is certain. A session that was fenced, or
whose transaction ended unknown, is closed rather than reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.environments import Rule
from jepsen.workloads.sessions._aio import AioSession, create_topic
from jepsen.workloads.sessions._base import (
    REQUEST_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Batch,
    LogSession,
    SessionError,
    SessionOptions,
)

if TYPE_CHECKING:
    from jepsen.environments import Environment
    from jepsen.workloads._base import WorkloadOptions

__all__ = [
    "REQUEST_TIMEOUT_MS",
    "SESSION_TIMEOUT_MS",
    "Batch",
    "LogSession",
    "SessionError",
    "create_topic",
    "rules_of",
    "session",
    "transactional",
]


def session(
    environment: Environment,
    options: WorkloadOptions,
    *,
    transactional_id: str = "",
    group: str = "",
) -> LogSession:
    """Return a session by the library that the options name."""
    asked = SessionOptions(
        environment.entrance, options.topic, options.acks, transactional_id, group
    )
    if options.client == "librdkafka":
        # Not imported in the simulation, where it has no part.
        from jepsen.workloads.sessions._librdkafka import LibrdkafkaSession

        return LibrdkafkaSession(asked)
    return AioSession(asked)


def transactional(environment: Environment, options: WorkloadOptions, process: int) -> LogSession:
    """With the transactional id of the process' thread, so that it fences the one before it."""
    thread = process % options.concurrency
    return session(environment, options, transactional_id=f"{options.topic}-{thread}")


def rules_of(
    options: WorkloadOptions, *, has_transactions: bool = False, group: str = ""
) -> tuple[Rule, ...]:
    """Return the rules that sessions need, and no others. `group`: as `session` takes it."""
    topic = options.topic
    transactions = Rule("transactional_id", f"{topic}-", "write", prefixed=True)
    return (
        Rule("topic", topic, "read"),
        Rule("topic", topic, "write"),
        # Consumers of librdkafka always are of a group, for whose coordinator they ask.
        Rule("group", group or topic, "read"),
        *((transactions,) if has_transactions else ()),
    )
