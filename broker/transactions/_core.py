"""The transaction coordinator: decides about the transactional ids of one partition (rows T2, T3).

Pure; `broker.coordinator.core` says how it is run. An outcome is decided when PREPARE is in the log
and committed; only then markers are asked for, by a command, and the client gets its response. A
broker that takes over finds PREPARE in the log and asks for the markers again, so that a crash at
any step leaves nothing open. Markers may be written twice; what they say is the same.

A producer is fenced by its epoch alone. Every record that gives the id to another producer, or ends
a transaction against the producer's will, bears a greater one. So a producer that was paused and
comes back is refused here with PRODUCER_FENCED. It is refused at the partitions, too: a marker
with the greater epoch is in their logs, or none of its partitions is open.

Until COMPLETE is written, each request of the producer gets CONCURRENT_TRANSACTIONS, and clients
try again. A next transaction that began before the markers of the last one were written would have
records that such a marker ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator import STEP_ITEMS, STEPS, StepQueue, in_batches
from broker.coordinator.core import Answer, Command, Core, Effect, Journal, Now
from broker.transactions._state import (
    EPOCH_MAX,
    NO_ID,
    TRANSACTION_V2,
    Transaction,
    TransactionState,
    check_succession,
    read_record,
    record_of,
)
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence


_ABORTS = ("aborts",)
_EXPIRY = ("expiry",)


class Settings(NamedTuple):
    """Times in milliseconds."""

    timeout_max_ms: int = 900_000
    expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000
    patience_ms: int = 100
    """The time a patient AddPartitions waits at most."""


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A producer begins, or goes on after an error (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    """The id that it had before; NO_ID when it begins."""
    producer_epoch: int = -1
    fresh_id: int = NO_ID
    """An id that nobody has, if the coordinator needs one: see `TransactionCore.needs_id`."""

    def with_id(self, producer_id: int) -> InitProducer:
        """Return the request with a fresh id."""
        return replace(self, fresh_id=producer_id)


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions that a transaction is going to write to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    verify_only: bool = False
    """True to ask only if they belong to it."""
    patient: bool = False
    """Waits a moment for the markers of the producer's last transaction, instead of being refused
    with CONCURRENT_TRANSACTIONS, after which a client waits for longer than markers take.
    """


class _Waiting(NamedTuple):
    """A patient request, and until when it waits."""

    request_id: int
    request: AddPartitions
    until_ms: int


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The producer's wish."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = 0
    """TRANSACTION_V2: the producer goes on with the next epoch."""
    fresh_id: int = NO_ID
    """The fresh id, as in `InitProducer`."""

    def with_id(self, producer_id: int) -> EndTransaction:
        """Return the request with a fresh id."""
        return replace(self, fresh_id=producer_id)


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of a decided transaction has its marker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ForceAbort:
    """The cluster's operator ends whatever is ongoing."""

    transactional_id: str


Request = InitProducer | AddPartitions | EndTransaction | MarkersWritten | ForceAbort


class ProducerGoesOn(NamedTuple):
    """The answer to InitProducer and EndTransaction."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """A command: to the leaders of these partitions, until all have them; then MarkersWritten."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int


class TransactionIds:
    """The ids with their newest transactions, and two indexes of these.

    The indexes are what time needs: without them each round would look at every id, of which a
    partition may have a million, to find the few transactions that are late.
    """

    def __init__(self) -> None:
        self.known: dict[str, Transaction] = {}
        self.ongoing: dict[str, None] = {}
        """The ids with an ongoing transaction, in the order in which they were seen."""
        self.prepared: dict[str, None] = {}
        """The ids with a decided transaction, whose markers are on their way."""

    def invariants(self) -> None:
        """Stop the program unless the indexes say what the transactions do."""
        ongoing = {n for n, one in self.known.items() if one.state is TransactionState.ONGOING}
        invariant(self.ongoing.keys() == ongoing, "what is ongoing is found when it is late")
        prepared = {n for n, one in self.known.items() if one.state.is_prepared}
        invariant(self.prepared.keys() == prepared, "what is decided is found for its markers")

    def replay(self, key: bytes, value: bytes | None) -> str:
        """Take a record of the log; return the transactional id that it is of.

        Raises ValueError of a record that cannot be understood, before anything has changed.
        """
        name, found = read_record(key, value)
        self.ongoing.pop(name, None)
        self.prepared.pop(name, None)
        if found is None:
            self.known.pop(name, None)
            return name
        self.known[name] = found
        if found.state is TransactionState.ONGOING:
            self.ongoing[name] = None
        elif found.state.is_prepared:
            self.prepared[name] = None
        return name


class TransactionCore(Core):
    """The ids of one partition of `__transaction_state`; a `core.Core`."""

    def __init__(self, journal: Journal, coordinator_epoch: int, settings: Settings) -> None:
        self._journal = journal
        self._coordinator_epoch = coordinator_epoch
        self._settings = settings
        self._ids = TransactionIds()
        self._known = self._ids.known
        self._renewals: dict[str, int] = {}
        """The epoch that the producer gave with which an id was renewed last: it may ask again."""
        self._waiting: dict[str, _Waiting] = {}
        """The waiting requests by transactional id, in order of their ends. One for each id bounds
        them."""
        self._timers: Timers[Hashable] = Timers()
        self._steps = StepQueue(self._timers)
        self._upkeep = TransactionUpkeep(self._ids, journal, self._ask_for_markers, self._abort_now)
        self._now = Now(0, 0)
        self._effects: list[Effect] = []
        """The effects of what was due."""
        self._handlers: Mapping[type, Callable[[Any, Now], tuple[Any, list[Effect]]]] = {
            InitProducer: self._init,
            AddPartitions: self._add,
            EndTransaction: self._end,
            MarkersWritten: self._markers_written,
            ForceAbort: self._force_abort,
        }

    # --- what others may look at ----------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Transaction]:
        """Every id with its newest transaction."""
        return self._known

    def needs_id(self, request: Request) -> bool:
        """Whether the request must bring a producer id that nobody has.

        That is so for an id that is not known, and where the epochs of the present producer id are
        used up. The caller takes one from the controller and asks again (`with_id`). The state may
        change meanwhile; `_fresh` finds a request that brings none then.
        """
        found = self._known.get(request.transactional_id)
        if isinstance(request, InitProducer):
            return found is None or found.is_exhausted
        is_v2 = isinstance(request, EndTransaction) and request.client_version >= TRANSACTION_V2
        return is_v2 and found is not None and found.is_exhausted

    def invariants(self) -> None:
        self._ids.invariants()
        for name, one in self._waiting.items():
            found = self._known.get(name)
            decided = found is not None and found.state.is_prepared
            invariant(decided, "a request waits only for markers that are on their way")
            invariant(one.request.transactional_id == name, "a request waits under its own id")
        for name in self._renewals:
            found = self._known.get(name)
            empty = found is not None and found.state is TransactionState.EMPTY
            invariant(empty, "a renewal is remembered until the next record of its id")

    # --- Core -----------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_ID) -> None:
        """See `core.Core`. Nothing here belongs to a transaction itself."""
        del producer_id
        self._renewals.pop(self._ids.replay(key, value), None)

    def ended(self, producer_id: int, *, commit: bool) -> None:
        """See `core.Core`. No transaction writes to `__transaction_state`, so none ends in it."""

    def loaded(self, now: Now) -> list[Effect]:
        """Ask for the markers of all that was decided and may not have them.

        The former coordinator may have written every marker and crashed before COMPLETE. Only the
        partitions know that, and writing a marker twice is cheaper than asking them.
        """
        self._timers.set(_ABORTS, now.ms + self._settings.abort_interval_ms)
        self._timers.set(_EXPIRY, now.ms + self._settings.expiration_interval_ms)
        self._steps.begin("resume", self._upkeep.resume(), now.ms)
        return self._taken()

    def handle(self, request_id: int, request: Request, now: Now) -> list[Effect]:
        """See `core.Core`. The response to InitProducer may be an error that rests on records, that
        to a patient AddPartitions one that comes later.
        """
        if isinstance(request, AddPartitions) and self._must_wait(request):
            # Refused, its client would wait for its retry backoff, 100 ms as a rule. The markers
            # of a transaction are written within a few.
            until_ms = now.ms + self._settings.patience_ms
            self._waiting[request.transactional_id] = _Waiting(request_id, request, until_ms)
            return []
        response, effects = self._handlers[type(request)](request, now)
        return [Answer(request_id, response), *effects]

    def may_gather(self, request: Request) -> bool:
        """See `core.Core`. What producers ask for is decided one by one."""
        del request
        return False

    def handle_all(self, requests: Sequence[tuple[int, Request]], now: Now) -> list[Effect]:
        return [effect for one in requests for effect in self.handle(*one, now)]

    def deadline_ms(self) -> int | None:
        if not self._known:
            return None
        first = next(iter(self._waiting.values()), None)
        due_ms = self._timers.next_ms()
        if first is None or due_ms is None:
            return due_ms
        return min(due_ms, first.until_ms)

    def tick(self, now: Now) -> list[Effect]:
        """Abort what takes too long, forget unused ids, and refuse what has waited for too long."""
        self._now = now
        self._effects += self._out_of_patience(now)
        for key in self._timers.due(now.ms):
            if key == STEPS:
                self._steps.go_on(now.ms)
            elif key == _ABORTS:
                self._timers.set(_ABORTS, now.ms + self._settings.abort_interval_ms)
                self._steps.begin("abort", self._upkeep.abort_late(now.wall_ms), now.ms)
            elif key == _EXPIRY:
                self._timers.set(_EXPIRY, now.ms + self._settings.expiration_interval_ms)
                before_ms = now.wall_ms - self._settings.expiration_ms
                self._steps.begin("expire", self._upkeep.expire(before_ms), now.ms)
        return self._taken()

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _ask_for_markers(self, name: str) -> None:
        self._effects.append(self._markers(name))

    def _abort_now(self, name: str) -> None:
        self._effects += self._abort(name, self._now)

    # --- producers ------------------------------------------------------------------------------

    def _init(
        self, request: InitProducer, now: Now
    ) -> tuple[ProducerGoesOn | KafkaError, list[Effect]]:
        """Give the producer its id and epoch, and fence the one before it.

        Of an id that is known the epoch grows, so that requests of the former producer are refused
        from here on, and its open transaction is aborted first. A request that says its id and
        epoch may be one that was sent again: then the answer is the same (KIP-360).
        """
        # Six cases, in this order: a new id; an outcome on its way to the partitions; a producer
        # that is fenced; an open transaction; a request that was sent again; a renewal.
        self._check_new(request)
        name, before = request.transactional_id, self._known.get(request.transactional_id)
        if before is None:
            found = self._first(request, now)
            self._write(name, found)
            return ProducerGoesOn(*found.next_producer), []
        if before.state.is_prepared:
            # Before who asks is looked at: id and epoch may be those that come with COMPLETE.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        again = self._check_renewal(name, before, request)
        if before.state is TransactionState.ONGOING:
            # Its producer is fenced, and the client asks again until the markers are written.
            return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS), self._abort(name, now)
        if again:
            return ProducerGoesOn(*before.next_producer), []
        producer_id = self._fresh(request) if before.is_exhausted else before.producer_id
        after = before.renewed(producer_id, request.timeout_ms, now.wall_ms)
        self._write(name, after)
        if request.producer_id != NO_ID:
            self._renewals[name] = request.producer_epoch
        return ProducerGoesOn(*after.next_producer), []

    def _check_new(self, request: InitProducer) -> None:
        """Raise INVALID_REQUEST of an empty id, and INVALID_TRANSACTION_TIMEOUT of a time that is
        not within 1 ms and `transaction.max.timeout.ms`.

        A longer one would let a hanging transaction hold back `read_committed` consumers of its
        partitions for as long.
        """
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < request.timeout_ms <= self._settings.timeout_max_ms:
            text = f"transaction.timeout.ms is {request.timeout_ms}: it must be above 0 and at most"
            maximum = f" transaction.max.timeout.ms, {self._settings.timeout_max_ms}"
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text + maximum)

    def _first(self, request: InitProducer, now: Now) -> Transaction:
        """Return the first transaction of an id that nobody has used, or that was forgotten."""
        nothing: frozenset[TopicPartition] = frozenset()
        return Transaction(
            self._fresh(request),
            0,
            request.timeout_ms,
            TransactionState.EMPTY,
            nothing,
            now.wall_ms,
        )

    def _check_renewal(self, name: str, before: Transaction, request: InitProducer) -> bool:
        """Whether the producer has had its answer before (KIP-360). Raises PRODUCER_FENCED.

        A producer that goes on after an error names the id and epoch that it has. There are three
        ways for these to be right. They are the newest. Or they are those with which the newest
        came to be: the response was lost, and a second bump would fence the producer itself. Or
        their epochs were used up, and the id that followed was lost with the response. All others
        are of a producer that another one has replaced.
        """
        if request.producer_id == NO_ID:
            return False
        if request.producer_id == before.producer_id:
            if request.producer_epoch == before.producer_epoch:
                return False
            again = request.producer_epoch == self._renewals.get(name)
        else:
            # Its epochs were used up, and it has not heard of the id that follows.
            moved = request.producer_id == before.previous_producer_id
            used_up = request.producer_epoch >= EPOCH_MAX - 1 and before.producer_epoch == 0
            again = moved and used_up
        if not again:
            raise _fenced(before)
        return True

    @staticmethod
    def _fresh(request: InitProducer | EndTransaction) -> int:
        """Return the producer id that the request brings. The core cannot ask the controller for
        one, so its owner does so before; see `needs_id`.
        """
        if request.fresh_id == NO_ID:
            # What it was asked for has changed since.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return request.fresh_id

    # --- transactions ---------------------------------------------------------------------------

    def _add(
        self, request: AddPartitions, now: Now
    ) -> tuple[dict[TopicPartition, ErrorCode], list[Effect]]:
        """Add partitions to the transaction, which the first ones begin, or only verify them.

        While the markers of the last transaction are on their way, the next one cannot begin: its
        records would stand before the marker that ends the last one.
        """
        found = self._named(request)
        # A producer of version 2 has the epoch of its next transaction since the outcome was
        # decided, and the record that says so comes only with COMPLETE.
        comes = found.goes_on_as(request.producer_id, request.producer_epoch)
        if comes or (found.state.is_prepared and not request.verify_only):
            # Before who asks is looked at: id and epoch may be those that come with COMPLETE.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        _check_producer(found, request)
        if found.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_ongoing = found.state is TransactionState.ONGOING
        here = found.partitions if is_ongoing else frozenset()
        if request.verify_only:
            # The partition's leader asks. A batch that were appended outside of the transaction
            # would have no marker to end it, and would hold back consumers for ever (KIP-890).
            code = ErrorCode.TRANSACTION_ABORTABLE
            return {one: ErrorCode.NONE if one in here else code for one in request.partitions}, []
        if not is_ongoing or not request.partitions <= here:
            self._write(request.transactional_id, found.joined(request.partitions, now.wall_ms))
        return dict.fromkeys(request.partitions, ErrorCode.NONE), []

    def _must_wait(self, request: AddPartitions) -> bool:
        """Whether to hold the request until the markers of the last transaction are written.

        At most one request of an id waits, which bounds them. A second one is refused as usual.
        """
        name = request.transactional_id
        known = self._known.get(name)
        if known is None or not request.patient or name in self._waiting:
            return False
        return known.goes_on_as(request.producer_id, request.producer_epoch)

    def _go_on(self, name: str, now: Now) -> list[Effect]:
        """Handle the request that has waited for the markers, now that all are written."""
        invariant(not self._known[name].state.is_prepared, "a waiting request goes on once")
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            return []
        try:
            response, effects = self._add(waiting.request, now)
        except KafkaError as error:
            return [Answer(waiting.request_id, error, needs_commit=False)]
        return [Answer(waiting.request_id, response), *effects]

    def _out_of_patience(self, now: Now) -> list[Effect]:
        """Refuse what has waited for too long, as it would have been at once."""
        over = [name for name, one in self._waiting.items() if one.until_ms <= now.ms]
        error = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return [
            Answer(self._waiting.pop(name).request_id, error, needs_commit=False) for name in over
        ]

    def _end(self, request: EndTransaction, now: Now) -> tuple[ProducerGoesOn, list[Effect]]:
        """Decide the outcome, write it, and have the markers sent; the producer goes on at once.

        With transaction version 2 each transaction ends with the next epoch. A request that was
        sent again is thus distinguished from one that would end the next transaction (KIP-890).
        """
        name, is_v2 = request.transactional_id, request.client_version >= TRANSACTION_V2
        found = self._named(request)
        if is_v2 and found.state.is_prepared:
            # Before who asks is looked at, as in `_add`: a client of version 2 has its answer when
            # the outcome is decided, and may end its next transaction before COMPLETE.
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        # Version 1 cannot tell the two apart: a second EndTxn in COMPLETE is taken for the same
        # one, and refused only if it asks for the other outcome.
        again = found.has_ended_for(request.producer_id, request.producer_epoch) and is_v2
        if not again:
            # With the id that was used up it would seem to be another producer's.
            if is_v2 and found.follows(request.producer_id, request.producer_epoch):
                raise _fenced(found)
            _check_producer(found, request)
        if found.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if again or (found.state.is_complete and not is_v2):
            if found.state.is_commit != request.commit:
                raise _wrong_state(found, request)
            return ProducerGoesOn(*found.next_producer), []
        # A client of version 2 may abort without having written, to get the next epoch.
        if found.state is not TransactionState.ONGOING and (request.commit or not is_v2):
            raise _wrong_state(found, request)
        next_id = self._fresh(request) if is_v2 and found.is_exhausted else NO_ID
        decided = found.decided(
            commit=request.commit,
            now_ms=now.wall_ms,
            bump=is_v2,
            client_version=request.client_version,
            next_id=next_id,
        )
        return ProducerGoesOn(*decided.next_producer), self._decide(name, decided)

    def _named(self, request: AddPartitions | EndTransaction) -> Transaction:
        """Return the newest transaction of the id. Raises INVALID_PRODUCER_ID_MAPPING of one that
        is not known: it never was, or it has expired.
        """
        found = self._known.get(request.transactional_id)
        if found is None:
            raise _other_producer(request)
        return found

    def _force_abort(self, request: ForceAbort, now: Now) -> tuple[None, list[Effect]]:
        """Abort for an operator (KIP-664). Raises TRANSACTIONAL_ID_NOT_FOUND, and
        INVALID_TXN_STATE if nothing is ongoing.
        """
        if request.transactional_id not in self._known:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if request.transactional_id not in self._ids.ongoing:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is ongoing")
        return None, self._abort(request.transactional_id, now)

    def _abort(self, name: str, now: Now) -> list[Effect]:
        """Abort what is ongoing and fence its producer, by the epoch that the markers bear.

        Without the bump the producer could go on: its next batch would begin a transaction in the
        partition that no coordinator knows.
        """
        found = self._known[name]
        decided = found.decided(
            commit=False, now_ms=now.wall_ms, bump=True, client_version=found.client_version
        )
        return self._decide(name, decided)

    def _decide(self, name: str, decided: Transaction) -> list[Effect]:
        """Write the outcome. The command for the markers is released once that is committed: a
        marker of an outcome that is lost with this broker could not be taken back.
        """
        self._write(name, decided)
        return [self._markers(name)]

    def _markers(self, name: str) -> Command:
        """Return the command for the markers of a decided outcome, as its record says.

        It bears the leader epoch of this shard. Partitions refuse the markers of an older
        coordinator, whose view of the outcome may be one that was cut off (KIP-98).
        """
        found = self._known[name]
        invariant(found.state.is_prepared, "markers are asked for once the outcome is decided")
        return Command(
            WriteMarkers(
                name,
                found.producer_id,
                found.producer_epoch,
                found.state.is_commit,
                self._coordinator_epoch,
                found.partitions,
                found.client_version,
            )
        )

    def _markers_written(self, request: MarkersWritten, now: Now) -> tuple[None, list[Effect]]:
        """Write that the transaction is complete, and go on with a request that waited for that.

        COMPLETE is what lets the next transaction begin. If the log refuses it, the sender reports
        again: until then the id stays in PREPARE, and no marker is missing.
        """
        found = self._known.get(request.transactional_id)
        sent = request.producer_id, request.producer_epoch
        # A report of another outcome than the newest has been overtaken.
        is_newest = found is not None and sent == (found.producer_id, found.producer_epoch)
        if found is not None and is_newest and found.state.is_prepared:
            self._write(request.transactional_id, found.completed(now.wall_ms))
            return None, self._go_on(request.transactional_id, now)
        return None, []

    def _write(self, name: str, found: Transaction) -> None:
        """Write a record that may follow the one before; its replay changes the state."""
        check_succession(self._known.get(name), found)
        self._journal.append([record_of(name, found)])
        invariant(self._known.get(name) == found, "a record says what it was made from")


def _check_producer(found: Transaction, request: AddPartitions | EndTransaction) -> None:
    """Raise INVALID_PRODUCER_ID_MAPPING, or PRODUCER_FENCED of an epoch that is not the newest."""
    if request.producer_id != found.producer_id:
        raise _other_producer(request)
    if request.producer_epoch != found.producer_epoch:
        raise _fenced(found)


def _other_producer(request: AddPartitions | EndTransaction) -> KafkaError:
    text = f"producer {request.producer_id} is not that of the transactional id"
    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)


def _fenced(found: Transaction) -> KafkaError:
    text = f"another producer has taken over, with epoch {found.producer_epoch}"
    return KafkaError(ErrorCode.PRODUCER_FENCED, text)


def _wrong_state(found: Transaction, request: EndTransaction) -> KafkaError:
    wish = "commit" if request.commit else "abort"
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"cannot {wish}: it is {found.state.text}")


# --- time ---------------------------------------------------------------------------------------

_COMMAND = 5
"""To ask for markers takes as long as to look at so many ids."""
_ABORT = 20
"""To write that one transaction is aborted, too."""


class TransactionUpkeep:
    """Work that time brings to the ids of one partition, in steps: there may be very many.

    Between two steps everything may have changed, so each step decides and writes by itself.
    """

    def __init__(
        self,
        ids: TransactionIds,
        journal: Journal,
        ask_for_markers: Callable[[str], None],
        abort: Callable[[str], None],
    ) -> None:
        """`ask_for_markers` and `abort` act on one id; `abort` may raise KafkaError."""
        self._ids = ids
        self._journal = journal
        self._ask_for_markers = ask_for_markers
        self._abort = abort

    def resume(self) -> Iterator[None]:
        """Ask for the markers of all that was decided under another coordinator.

        Until then such a transaction stays as it is: what comes after it waits for its markers.
        """
        for count, name in enumerate(list(self._ids.prepared), 1):
            self._ask_for_markers(name)
            if count % (STEP_ITEMS // _COMMAND) == 0:
                yield

    def abort_late(self, wall_ms: int) -> Iterator[None]:
        """Abort what takes too long (`transaction.timeout.ms` of its producer).

        If the log takes nothing now, the next round tries again: an abort that is late by
        `abort_interval_ms` is within what clients expect.
        """
        left = STEP_ITEMS
        for name in list(self._ids.ongoing):
            left -= 1
            if name in self._ids.ongoing and self._ids.known[name].ends_ms <= wall_ms:
                try:
                    self._abort(name)
                except KafkaError:
                    return
                left -= _ABORT
            if left <= 0:
                yield
                left = STEP_ITEMS

    def expire(self, before_ms: int) -> Iterator[None]:
        """Forget the ids that were last used before then.

        Never one with an outcome under way: its markers would be lost. A producer whose id is
        forgotten gets INVALID_PRODUCER_ID_MAPPING and begins again with another producer id.
        """
        names = list(self._ids.known)
        for start in range(0, len(names), STEP_ITEMS):
            part = names[start : start + STEP_ITEMS]
            gone = [record_of(name, None) for name in part if self._is_silent(name, before_ms)]
            try:
                for batch in in_batches(gone):
                    self._journal.append(batch)
            except KafkaError:
                return
            yield

    def _is_silent(self, name: str, before_ms: int) -> bool:
        ids = self._ids
        found = ids.known.get(name)
        if found is None or name in ids.ongoing or name in ids.prepared:
            return False
        return found.updated_ms < before_ms
