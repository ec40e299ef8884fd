"""The requests that wait: a produce or a deletion for its replicas, a fetch for bytes.

Rows R5, R10 and L7.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from broker.replication.purgatory._purgatory import DelayedOperation
from broker.request_context import ReplicaWait, WaitEnd
from broker.types import AppendResult, DeletedRecords
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.partition import Partition
    from broker.request_context import RequestContext
    from broker.turns import Turn
    from broker.types import FetchParams, FetchPartition, FetchResult, TopicPartition


A = TypeVar("A")


class Awaited(NamedTuple):
    """A partition that a request waits for: its replicas must have reached `required_offset`."""

    replica: Partition
    required_offset: int


class _AwaitsReplicas(DelayedOperation["list[A]"], Generic[A]):
    """A request that is done at the leader, and waits for the other replicas of some partitions."""

    def __init__(self, turn: Turn, results: list[A], awaited: dict[int, Awaited]) -> None:
        """`results` as they are if all goes well; `awaited` by index into them."""
        super().__init__(turn)
        self._results = results
        self._awaited = awaited

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that it waits for."""
        return [one.replica.partition for one in self._awaited.values()]

    def is_complete_after(self, partition: TopicPartition) -> bool:
        """Take the result of this partition, if it is known now; return whether all are."""
        for index, one in list(self._awaited.items()):
            if one.replica.partition == partition and self._resolve(index, one):
                del self._awaited[index]
        return not self._awaited

    def answer(self) -> list[A]:
        """Return the results; those still awaited have timed out."""
        for index, one in self._awaited.items():
            self._time_out(index, one)
        # What is answered waits no more: a wake-up after the deadline must not change a result.
        self._awaited.clear()
        return self._results

    @abstractmethod
    def _resolve(self, index: int, one: Awaited) -> bool:
        """Put the result of one partition, if it is known now; return whether it is."""

    @abstractmethod
    def _time_out(self, index: int, one: Awaited) -> None:
        """Put the result of a partition that is still awaited at the deadline."""


class DelayedProduce(_AwaitsReplicas[AppendResult]):
    """A produce with acks=all, appended but not yet on all in-sync replicas."""

    def __init__(
        self,
        turn: Turn,
        results: list[AppendResult],
        awaited: dict[int, Awaited],
        request: RequestContext | None = None,
    ) -> None:
        """The `request` notes what it waited for last."""
        super().__init__(turn, results, awaited)
        self._request = request

    def _resolve(self, index: int, one: Awaited) -> bool:
        error = one.replica.state.acknowledged(one.required_offset)
        if self._request is not None and error is ErrorCode.NONE and len(self._awaited) == 1:
            self._request.waited_for = _wait_of(one.replica)
        if error is not None and error is not ErrorCode.NONE:
            self._put_error(index, one, error)
        return error is not None

    def _time_out(self, index: int, one: Awaited) -> None:
        if self._request is not None:
            lacking = one.replica.state.lacking(one.required_offset)
            wait = ReplicaWait(*one.replica.partition, lacking, WaitEnd.TIMED_OUT)
            self._request.waited_for = wait
        self._put_error(index, one, ErrorCode.REQUEST_TIMED_OUT)

    def _put_error(self, index: int, one: Awaited, error: ErrorCode) -> None:
        hint = one.replica.hint_for(error)
        self._results[index] = self._results[index]._replace(error=error, current_leader=hint)


def _wait_of(replica: Partition) -> ReplicaWait:
    """What the newest move of a leader's high watermark waited for."""
    state = replica.state
    if state.advanced_by is None:
        gone = tuple(one for one in state.replicas if one not in state.maximal_isr)
        return ReplicaWait(*replica.partition, gone, WaitEnd.LEFT_ISR)
    return ReplicaWait(*replica.partition, (state.advanced_by,))


class DelayedDelete(_AwaitsReplicas[DeletedRecords]):
    """A DeleteRecords that replicas on live brokers have still to follow (row L7, KIP-107).

    Followers learn of the new log start with their fetches, and report their own with the next
    ones. The result has the low watermark, the least log start of these replicas. A replica whose
    broker is away does not count: it catches up before anyone reads from it.
    """

    def __init__(
        self,
        turn: Turn,
        results: list[DeletedRecords],
        awaited: dict[int, Awaited],
        lives: Callable[[int], bool],
    ) -> None:
        """`lives` returns whether a broker is registered and not fenced."""
        super().__init__(turn, results, awaited)
        self._lives = lives

    def complete_at_once(self) -> bool:
        """Take the results that are known already; return whether those are all."""
        for index, one in list(self._awaited.items()):
            if self._resolve(index, one):
                del self._awaited[index]
        return not self._awaited

    def _resolve(self, index: int, one: Awaited) -> bool:
        error, low_watermark = one.replica.low_watermark(self._lives)
        is_known = error is not ErrorCode.NONE or low_watermark >= one.required_offset
        if is_known:
            self._results[index] = DeletedRecords(error, low_watermark)
        return is_known

    def _time_out(self, index: int, one: Awaited) -> None:
        # At the leader the records are gone: the result keeps its log start.
        late = replace(self._results[index], error=ErrorCode.REQUEST_TIMED_OUT)
        self._results[index] = late


class DelayedFetch(DelayedOperation["list[FetchResult]"]):
    """A fetch that found too few bytes. It is answered by reading again."""

    def __init__(
        self,
        turn: Turn,
        params: FetchParams,
        partitions: list[FetchPartition],
        found: Sequence[FetchResult],
        replicas: Mapping[TopicPartition, Partition],
        read: Callable[[], list[FetchResult]],
        must_wait: Callable[[Partition, int], bool],
        *,
        notifies_high_watermarks: bool,
    ) -> None:
        """`replicas` is the broker's own table, so that it always says what is there; `read` reads
        the partitions again; `must_wait` returns whether a follower gets nothing of a
        partition now, however much there is.
        """
        super().__init__(turn)
        self._params = params
        self._partitions = partitions
        self._replicas = replicas
        self._read = read
        self._must_wait = must_wait
        self._notifies_high_watermarks = notifies_high_watermarks
        self._indexes: dict[TopicPartition, int] = {
            wanted.partition: index for index, wanted in enumerate(partitions)
        }
        self._available = [result.size for result in found]
        self._total = sum(self._available)

    def reads_more(self, wanted: FetchPartition) -> None:
        """Add a partition that became dirty to those that the fetch reads."""
        # By its index the fetch finds what it reads again: in another order it would wait for the
        # bytes of one partition, and look at another.
        added = self._partitions[len(self._available) :] == [wanted]
        invariant(added, "a fetch watches what it reads")
        self._indexes[wanted.partition] = len(self._available)
        self._available.append(0)

    def is_complete_after(self, partition: TopicPartition) -> bool:
        """Take the result of this partition, if it is known now; return whether all are."""
        index = self._indexes[partition]
        wanted, replica = self._partitions[index], self._replicas.get(partition)
        params = self._params
        if replica is None or replica.fetch_error(wanted, params):
            return True
        if replica.diverging(wanted) is not None or self._must_notify(replica):
            return True
        others = self._total - self._available[index]
        needed = params.min_bytes - others
        try:
            available = 0
            if not self._must_wait(replica, params.replica_id):
                available = replica.available_bytes(wanted, params, needed)
        except KafkaError:
            # The log is damaged here: reading it again returns the error to the client.
            return True
        self._available[index] = available
        self._total = others + available
        return available >= needed

    def _must_notify(self, replica: Partition) -> bool:
        """Return whether a follower waits for a commit that its own consumers should see at
        once.
        """
        return self._notifies_high_watermarks and replica.is_behind_in_high_watermark(
            self._params.replica_id
        )

    def answer(self) -> list[FetchResult]:
        """Return the results; those still awaited have timed out."""
        return self._read()


def is_enough(results: Sequence[FetchResult], min_bytes: int) -> bool:
    """Return whether a fetch is answered at once: enough bytes, or something else to report."""
    if any(r.error or r.diverging or r.preferred_read_replica >= 0 for r in results):
        return True
    return sum(result.size for result in results) >= min_bytes
