"""Requests of coordinators to other brokers: a queue for each, so that none delays another.

One request to a broker is under way at a time, and takes along all that has come meanwhile. Under
load the batches grow by themselves, and an idle queue adds no delay. The queues are bounded: what
does not fit is refused at once, and the caller tries again. An unbounded queue to a broker that is
down would grow with each transaction that ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.background import Background
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.protocol.codec import Message
    from broker.replication.fetcher import BrokerConnection, Connector
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

WAITING_MAX = 10_000
_AT_ONCE_MAX = 1_000


class Form(NamedTuple):
    """Translation between entries and messages: several entries make one request, and its response
    one answer to each of them.
    """

    api_key: int
    version: int
    client: str
    """The client id."""
    message: Callable[[Sequence[Any]], Message]
    answers: Callable[[Any], Sequence[Any]]
    """A function to the answers, in order of the requests; KafkaError if all are refused."""


class _Entry(NamedTuple):
    asked: Any
    done: asyncio.Future[Any]


class BrokerQueues:
    """The queues of one purpose, a queue for each broker that was asked so far; `stop` them.

    A queue is never removed: brokers are few, and one that comes back finds its queue again.
    """

    def __init__(
        self,
        form: Form,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        fail: Callable[[BaseException], None],
        connector: Connector,
    ) -> None:
        self._form = form
        self._config = config
        self._connector = connector
        self._image = image
        self._background = Background(fail)
        self._queues: dict[int, _Queue] = {}

    def ask(self, broker_id: int, what: Any) -> asyncio.Future[Any]:
        """Return the broker's answer. KafkaError: what refuses all, NETWORK_EXCEPTION,
        REQUEST_TIMED_OUT, or COORDINATOR_NOT_AVAILABLE if too much waits.
        """
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _Queue(
                self._form, self._config, broker_id, self._image, self._connector
            )
            self._background.start(queue.run())
        return queue.ask(what)

    async def stop(self) -> None:
        """Stop; entries that wait are never resolved."""
        await self._background.stop()
        for queue in self._queues.values():
            queue.close()


class _Queue:
    """Of one broker."""

    def __init__(
        self,
        form: Form,
        config: NodeConfig,
        broker_id: int,
        image: Callable[[], MetadataImage],
        connector: Connector,
    ) -> None:
        self._form = form
        self._config = config
        self._connector = connector
        self._broker_id = broker_id
        self._image = image
        self._waiting: asyncio.Queue[_Entry] = asyncio.Queue(WAITING_MAX)
        self._connection: BrokerConnection | None = None

    def ask(self, what: Any) -> asyncio.Future[Any]:
        """See `BrokerQueues.ask`."""
        entry = _Entry(what, asyncio.get_running_loop().create_future())
        try:
            self._waiting.put_nowait(entry)
        except asyncio.QueueFull:
            text = f"{WAITING_MAX} requests wait for broker {self._broker_id}"
            _refuse([entry], KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))
        return entry.done

    async def run(self) -> None:
        """Send what waits, again and again, at most `_AT_ONCE_MAX` entries in a request."""
        while True:
            entries = [await self._waiting.get()]
            while len(entries) < _AT_ONCE_MAX and not self._waiting.empty():
                entries.append(self._waiting.get_nowait())
            await self._exchange(entries)

    def close(self) -> None:
        """Drops the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _exchange(self, entries: list[_Entry]) -> None:
        invariant(0 < len(entries) <= _AT_ONCE_MAX, "a request is not empty, and is bounded")
        message = self._form.message([entry.asked for entry in entries])
        try:
            answer = await self._answer(message)
        except KafkaError as error:
            self.close()
            _refuse(entries, error)
            return
        try:
            answers = list(zip(entries, self._form.answers(answer), strict=True))
        except KafkaError as error:
            _refuse(entries, error)
        except ValueError as error:
            # Fewer answers than entries: which of them is missing cannot be said.
            text = f"broker {self._broker_id} does not answer what was asked: {error}"
            _refuse(entries, KafkaError(ErrorCode.NETWORK_EXCEPTION, text))
        else:
            for entry, found in answers:
                if not entry.done.done():
                    entry.done.set_result(found)

    async def _answer(self, message: Message) -> Message:
        """Asks once more if a connection from before is lost before the answer comes: the other
        broker closes what was idle, perhaps while a request is on its way. What is asked here may
        be done twice.
        """
        form, timeout_ms = self._form, self._config.replica_socket_timeout_ms
        is_held = self._connection is not None and self._connection.is_open
        connection = await self._connected(timeout_ms)
        try:
            return await connection.call(form.api_key, form.version, message, timeout_ms)
        except KafkaError as error:
            if not is_held or error.code is not ErrorCode.NETWORK_EXCEPTION:
                raise
        self.close()
        connection = await self._connected(timeout_ms)
        return await connection.call(form.api_key, form.version, message, timeout_ms)

    async def _connected(self, timeout_ms: int) -> BrokerConnection:
        if self._connection is None or not self._connection.is_open:
            broker = self._image().brokers.get(self._broker_id)
            listener = self._config.inter_broker_listener
            endpoint = None if broker is None else broker.endpoint(listener)
            if endpoint is None:
                text = f"broker {self._broker_id} has no address"
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text)
            purpose = self._form.client
            self._connection = await self._connector.connect(endpoint, purpose, timeout_ms)
        return self._connection


def _refuse(entries: Sequence[_Entry], error: KafkaError) -> None:
    for entry in entries:
        if not entry.done.done():
            entry.done.set_exception(error)
            # The caller may be gone.
            entry.done.exception()
