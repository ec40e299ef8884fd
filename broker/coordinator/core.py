"""The seam between a coordinator's rules and the shell that runs them.

A core is the state of one partition of an internal topic: pure, no clock, no network. What must
outlive a change of leader it writes to its `Journal`; a record is in the log, and has been replayed
into the core, when `append` returns, or is refused and nothing has changed. So the core always
equals the replay of its leader's log, and there is nothing to roll back: when the leadership goes
the whole core goes, and the next leader replays the log.

A core responds to a client with an `Answer`, which names the request by its id. It may come from a
later call: a JoinGroup is answered when others have joined. An answer that rests on records is
released only when all that the core has written so far is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.log.batches.record_batch import NO_PRODUCER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LogRecord = tuple[bytes | None, bytes | None]
"""Key and value of a record as the log has it: who writes into the topic may leave either out."""

NOBODY = (NO_PRODUCER, -1)
"""The producer id and epoch of what belongs to no transaction."""


class KeyValue(NamedTuple):
    """A record of an internal topic; without a value a tombstone."""

    key: bytes
    value: bytes | None


class Now(NamedTuple):
    """The time of a call, in milliseconds."""

    ms: int
    """The time for timeouts, by a clock that never goes back."""
    wall_ms: int
    """The time since 1970, for timestamps that others read."""


class Answer(NamedTuple):
    """The response to a request. A tuple, as requests are: it is made in a third of the time."""

    request_id: int
    response: Any
    """A KafkaError refuses the request."""
    needs_commit: bool = True
    """True if it waits until all that the core has written so far is committed."""


class Command(NamedTuple):
    """Something for the coordinator's owner to do, once all written so far is committed."""

    what: Any


Effect = Answer | Command


class Journal(Protocol):
    """Place where a core writes its records."""

    def append(self, records: Sequence[KeyValue], producer: tuple[int, int] = NOBODY) -> None:
        """Append the records as one batch, all or none, and replays them into the core.

        Those of a producer, its id and epoch, count when its transaction is committed.
        KafkaError if they are refused, with an error that a coordinator's client understands.
        """


class Core(Protocol):
    """The rules of one partition."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Take a record of the log, while loading and after each append; of a producer's
        transaction if there is a producer id.

        A record that cannot be understood raises ValueError.
        """

    def replay_all(
        self, records: Iterable[LogRecord], producer_id: int = NO_PRODUCER
    ) -> list[ValueError]:
        """Take records of the log while loading, as `replay` takes each, but for those without a
        key; return why some could not be understood.
        """
        skipped = []
        for key, value in records:
            if key is not None:
                try:
                    self.replay(key, value, producer_id)
                except ValueError as error:
                    skipped.append(error)
        return skipped

    def ended(self, producer_id: int, *, commit: bool) -> None:
        """Take the end of a producer's transaction: its records count now, or never."""

    def loaded(self, now: Now) -> list[Effect]:
        """Note that the log has been replayed; requests come from now on."""

    def handle(self, request_id: int, request: Any, now: Now) -> list[Effect]:
        """Begin a request; KafkaError refuses it, with nothing changed."""

    def may_gather(self, request: Any) -> bool:
        """Return whether all requests like this of one turn of the loop go to `handle_all`."""

    def handle_all(self, requests: Sequence[tuple[int, Any]], now: Now) -> list[Effect]:
        """Begin several requests, each with its id, and writes one batch for all if it can.

        Refusals are answers, so that one request is not refused for another.
        """

    def deadline_ms(self) -> int | None:
        """Return when `tick` must be called next, on the clock of `Now.ms`; None: not by time."""

    def tick(self, now: Now) -> list[Effect]:
        """Do what is due."""

    def invariants(self) -> None:
        """Stop the program with InvariantViolation if the state is one that cannot be.

        Looks at everything, so it is for tests: after each event. What is cheap is checked where
        the state changes.
        """
