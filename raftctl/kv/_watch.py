"""Watches over HTTP: the changes of a key or a prefix as lines of JSON, in the order of the log.

The first line says where the watch begins, and from then on every line says in `next` from which
offset on to watch again should the connection end: nothing is missed or seen twice. A watcher that
does not read is no burden, since the log buffers for it; one that does not take what was written to
it in time is cut off, and resumes. The rules are asked before each piece: a watcher whose right is
revoked sees nothing that comes later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError, Fields, error_response
from raftctl.integers import LONG_MAX
from raftctl.json_values import value_fields
from raftctl.kv._http import PATH
from raftctl.kv._rights import READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.kv._events import KvChunk, KvEventLog
    from raftctl.kv._follower import KvFollower
    from raftctl.kv._rights import Confirmed, KeyRights

WATCHES_MAX = 1_000
"""At once on one node."""
PROGRESS_S = 5.0
"""A line comes at least so often, so that either end notices when the other is gone."""
WRITE_TIMEOUT_S = 10.0
"""How long a watcher may take for what was written to it."""
FROM_NOW = -1
CONTROL_RECORDS_MAX = 1_000
"""More than ever stand at a log's end: the quorum's own records, which images do not count."""


class KvWatches:
    """The watches of one node."""

    def __init__(
        self,
        events: KvEventLog,
        follower: KvFollower,
        confirmed: Confirmed,
        rights: Callable[[web.Request], KeyRights],
    ) -> None:
        """`confirmed` gives an image that shows all that was committed before the call; `rights`
        what the client of a request may do."""
        self._events = events
        self._rights = rights
        self._confirmed = confirmed
        self._follower = follower
        self._watching: dict[asyncio.Task[Any], None] = {}

    def mount(self, application: web.Application) -> None:
        """Add the route; the application ends the watches when it shuts down."""
        application.router.add_get(f"{PATH}/watch", self._watch)
        application.on_shutdown.append(self._shut_down)

    async def _shut_down(self, application: web.Application) -> None:
        for task in list(self._watching):
            task.cancel()

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        try:
            fields = await Fields.of(request)
            watch = await self._begin(fields, self._rights(request))
        except (BadFieldError, KafkaError) as error:
            return error_response(error, start_offset=self._events.start_offset)
        task = asyncio.current_task()
        if task is not None:
            self._watching[task] = None
        try:
            return await self._serve(request, watch)
        finally:
            if task is not None:
                del self._watching[task]

    async def _begin(self, fields: Fields, rights: KeyRights) -> _Watch:
        key, prefix = fields.text_or_none("key"), fields.text_or_none("prefix")
        start = fields.number("from", FROM_NOW, 0, LONG_MAX)
        fields.end()
        if key is not None and prefix is not None:
            raise BadFieldError("prefix", "give it or key")
        if key is not None:
            await rights.require(READ, key)
        else:
            await rights.require_prefix(READ, prefix or "")
        offset = self._follower.image.offset + 1 if start == FROM_NOW else start
        await self._check_is_known(offset)
        if len(self._watching) >= WATCHES_MAX:
            why = f"there are {WATCHES_MAX} watches on this node: ask another"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why)
        self._events.read(offset)  # an error is better sent before the answer has begun
        return _Watch(key, prefix or "", offset, rights)

    async def _check_is_known(self, offset: int) -> None:
        """KafkaError: OFFSET_OUT_OF_RANGE for what no log of this cluster has come to.

        A watcher has such an offset from another cluster, or from before a disaster, and would
        see nothing until the log has come so far.
        """
        if offset <= self._follower.image.offset + 1:
            return
        end = (await self._confirmed()).offset + 1
        if offset > end + CONTROL_RECORDS_MAX:
            why = f"from: offset {offset} is beyond the log's end, {end}: list the keys again and "
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{why}watch from the offset after the list's"
            )

    async def _serve(self, request: web.Request, watch: _Watch) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/x-ndjson"
        await response.prepare(request)
        lines = _Lines(request, response)
        with contextlib.suppress(ConnectionError):
            await lines.write({"type": "watching", "next": watch.offset})
            while not lines.ended:
                await self._step(lines, watch)
        return response

    async def _step(self, lines: _Lines, watch: _Watch) -> None:
        """Write what is there, or wait for more."""
        try:
            chunk = self._events.read(watch.offset)
            if chunk.events:
                await self._follower.reached(chunk.events[-1].offset)  # with the rules before it
            watch.check_right()
        except KafkaError as error:
            lost = {"type": "error", "error": error.code.name, "message": error.message}
            await lines.write({**lost, "start_offset": self._events.start_offset})
            lines.ended = True
            return
        if chunk.next_offset == watch.offset:
            await self._wait(lines)
        else:
            watch.offset = chunk.next_offset
            await lines.write(*watch.events(chunk))
            await asyncio.sleep(0)  # others have their turn between chunks
        if lines.patience_s <= 0:
            await lines.write({"type": "progress", "next": watch.offset})

    async def _wait(self, lines: _Lines) -> None:
        """Until something has changed, or a line must come, or this node stops."""
        try:
            async with asyncio.timeout(lines.patience_s):
                await self._follower.changed()
        except TimeoutError:
            pass
        except KafkaError:
            lines.ended = True


class _Watch:
    """What one watcher wants, and where it is."""

    def __init__(self, key: str | None, prefix: str, offset: int, rights: KeyRights) -> None:
        self._rights = rights
        self._key = key
        self._prefix = prefix
        self.offset = offset
        """Of the first record that it has not seen."""

    def check_right(self) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) if it may not see them any more."""
        if self._key is not None:
            self._rights.check(READ, self._key)
        else:
            self._rights.check_prefix(READ, self._prefix)

    def events(self, chunk: KvChunk) -> Iterator[dict[str, Any]]:
        """The events that it wants."""
        for offset, key, value in chunk.events:
            if key != self._key if self._key is not None else not key.startswith(self._prefix):
                continue
            event = {"key": key, "version": offset, "next": offset + 1}
            if value is None:
                yield {"type": "delete", **event}
            else:
                yield {"type": "put", **event, **value_fields(value)}


class _Lines:
    """The answer to one watcher, a line of JSON at a time."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self._request = request
        self._response = response
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self.ended = False

    @property
    def patience_s(self) -> float:
        """How long until a line must come."""
        return max(0.0, self._written_at + PROGRESS_S - self._loop.time())

    async def write(self, *lines: dict[str, Any]) -> None:
        """Write lines; end the connection if the watcher does not take them in time."""
        if not lines:
            return
        data = "".join([json.dumps(line) + "\n" for line in lines]).encode()
        self._written_at = self._loop.time()
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._response.write(data)
        except TimeoutError:
            self.ended = True
            if self._request.transport is not None:
                self._request.transport.abort()
