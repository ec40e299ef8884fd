"""A session that is kept open by heartbeats, as long as somebody can tell that it is open."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.runtime.lease_clock import lease_ends, lease_time

if TYPE_CHECKING:
    from types import TracebackType

    from raftctl.client._transport import Transport

BEATS = 3
"""Heartbeats in a timeout."""
CLOSE_TIMEOUT_S = 3.0


class Session:
    """Use it with `async with`; it is closed at the end, and with it what is bound to it.

    A session counts as lost when a controller says so, or when no heartbeat was answered for nine
    tenths of its timeout. That is counted from when the heartbeat was sent, by a clock that goes on
    while the machine is suspended. The controllers count all of it, and from later: this end is
    never the last to know, as long as its clock is not slower than theirs by more than a tenth.
    """

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._keeper: asyncio.Task[None] | None = None
        self.session_id = ""
        self.lost = asyncio.Event()
        """Set when the session is over, as soon as this program comes to notice."""
        self.open_until = math.inf
        """The time by `lease_time` before which no controller takes it for silent, once it is
        open."""

    async def __aenter__(self) -> Session:
        loop = asyncio.get_running_loop()
        sent_at = lease_time(loop)
        asked = {"timeout_ms": int(self._timeout_s * 1000)}
        # A session that was opened without an answer expires of itself.
        opened = await self._transport.post("/session/open", asked, repeat=True)
        self.session_id = opened["session"]
        self._timeout_s = opened["timeout_ms"] / 1000
        self.open_until = lease_ends(sent_at, self._timeout_s)
        self._keeper = loop.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        was_open = not self.lost.is_set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self.lost.set()
        if was_open:
            body = {"session": self.session_id}
            with contextlib.suppress(KafkaError):  # then it expires
                await self._transport.post(
                    "/session/close", body, repeat=True, timeout_s=CLOSE_TIMEOUT_S
                )

    def is_open(self) -> bool:
        """Return whether no controller can have ended the session, as far as this program knows."""
        return not self.lost.is_set() and lease_time(asyncio.get_running_loop()) < self.open_until

    def check(self) -> None:
        """KafkaError(UNKNOWN_MEMBER_ID) if the session is over, or may be.

        Also where this program was held up and has not come to notice yet.
        """
        if not self.is_open():
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "session: it is over")

    async def _keep(self) -> None:
        """Beat until the session is over."""
        loop = asyncio.get_running_loop()
        body = {"session": self.session_id}
        try:
            while (left_s := self.open_until - lease_time(loop)) > 0:
                await asyncio.sleep(min(self._timeout_s / BEATS, left_s))
                sent_at = lease_time(loop)
                left_s = self.open_until - sent_at
                try:
                    await self._transport.post(
                        "/session/heartbeat", body, repeat=True, timeout_s=max(0.0, left_s)
                    )
                except KafkaError as error:
                    if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                        return
                else:
                    self.open_until = lease_ends(sent_at, self._timeout_s)
        finally:
            self.lost.set()
