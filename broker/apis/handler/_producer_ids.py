"""Gives out producer ids from blocks that the controller grants (row C10).

The next block is asked for before the present one is used up, so that producers do not wait for the
controller. An id is never given twice: what is left of a block when the broker stops is lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.plugins import ControllerClient

_TIMEOUT_MS = 10_000
_PREFETCH_SHARE = 10
"""The next block is asked for when a tenth of the present one is left."""


class ProducerIds:
    """The blocks of this broker."""

    def __init__(
        self, controller: ControllerClient, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._current = range(0)
        self._next = range(0)
        self._prefetch_below = 0
        self._asking: asyncio.Task[None] | None = None
        self._last = -1
        """The newest id that was given out."""

    async def take(self) -> int:
        """Return a producer id that no producer had or will have.

        Raises KafkaError if no block of ids can be had.
        """
        while not self._current and not self._next:
            self._ask()
            if self._asking is not None:
                # Shielded: other clients that wait for the same block must not lose it with this
                # one.
                await asyncio.shield(self._asking)
        if not self._current:
            self._current, self._next = self._next, range(0)
            self._prefetch_below = len(self._current) // _PREFETCH_SHARE
        producer_id, self._current = self._current[0], self._current[1:]
        invariant(producer_id > self._last, "a producer id is given out once")
        self._last = producer_id
        if len(self._current) <= self._prefetch_below and not self._next:
            self._ask()
        return producer_id

    def close(self) -> None:
        """Cancel the request to the controller."""
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> None:
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._fetch_block())
            self._asking.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            # A failed prefetch is nobody's error: who needs a block asks again.
            task.exception()

    async def _fetch_block(self) -> None:
        request = AllocateProducerIdsRequest(self._broker_id, self._broker_epoch())
        response = await self._controller.call(request, _TIMEOUT_MS)
        if not isinstance(response, AllocateProducerIdsResponse) or response.error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids")
        self._next = range(response.first, response.first + response.count)
