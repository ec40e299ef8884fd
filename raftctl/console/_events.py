"""Live updates: server-sent events of what this node sees change.

A viewer's stream has no queue. What changed since it was last written to is one small set, and what
is written is the newest state. So a slow reader skips states, and costs no more memory than others.
Source: the HTML standard, server-sent events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from raftctl.console.http import Rights
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import error_response
from raftctl.metadata.acls import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.console._cluster import ClusterViews
    from raftctl.console._quorum import QuorumViews
    from raftctl.console._topic_health import ClusterHealth
    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.security import Authorizer, Requester

STREAMS_MAX = 64
NAMES_MAX = 100
"""Topics that an event names; of more a page asks for whatever it shows."""
PAUSE_S = 0.25
"""From one state to the next: at most four a second."""
TICK_S = 1.0
"""How often lags are written, which change without any event."""
HEARTBEAT_S = 15.0
WRITE_TIMEOUT_S = 30.0
"""A reader that takes nothing for so long is gone."""
LIFETIME_S = 600.0
"""Then the page connects again, and its login is looked at again."""
_KINDS = ("brokers", "configs", "acls", "quotas")
_OFFSETS_TOPIC = "__consumer_offsets"
_OF_NO_INTEREST = ("metadata_offset", "served_ms")
"""Fields of the overview that change although nothing has happened."""


class Changed:
    """What has changed since a viewer was last written to."""

    def __init__(self) -> None:
        self.topics: set[str] | None = set()
        """Names; None for many."""
        self.kinds: set[str] = set()
        """Of `_KINDS`."""

    def __bool__(self) -> bool:
        return bool(self.topics is None or self.topics or self.kinds)

    def add(self, other: Changed) -> None:
        """Add what else has changed."""
        self.kinds |= other.kinds
        if self.topics is not None:
            self.topics = None if other.topics is None else self.topics | other.topics
        if self.topics is not None and len(self.topics) > NAMES_MAX:
            self.topics = None

    @classmethod
    def by(cls, delta: MetadataDelta) -> Changed:
        """Return what a delta changes, of what the console shows."""
        found = cls()
        kinds = {
            "brokers": delta.changed_brokers,
            "configs": delta.changed_configs,
            "acls": delta.changed_acls,
            "quotas": delta.changed_quotas,
        }
        found.kinds = {kind for kind, changes in kinds.items() if changes}
        if len(delta.changed_topics) + len(delta.deleted_topics) > NAMES_MAX:
            found.topics = None
        else:
            found.topics = {topic.name for topic in delta.changed_topics.values()}
            found.topics |= {topic.name for topic in delta.deleted_topics.values()}
        return found


class _Viewer:
    """One stream."""

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self.changed = Changed()
        self.woken = asyncio.Event()

    def take(self) -> Changed:
        """Return what has changed, and begin again."""
        self.woken.clear()
        changed, self.changed = self.changed, Changed()
        return changed


class EventStreams:
    """The streams of one node; a publisher of the loader from the first stream on."""

    def __init__(
        self,
        loader: MetadataLoader,
        health: ClusterHealth,
        cluster: ClusterViews,
        quorum: QuorumViews,
        authorizer: Authorizer | None,
        identify: Callable[[web.Request], Requester],
    ) -> None:
        self._loader = loader
        self._health = health
        self._cluster = cluster
        self._quorum = quorum
        self._authorizer = authorizer
        self._identify = identify
        self._is_following = False
        self._made: dict[object, tuple[dict[str, Any], bytes]] = {}
        """Documents with their frames, for viewers of equal rights; of one image."""
        self._made_of: tuple[MetadataImage | None, float] = None, 0.0
        self._viewers: dict[asyncio.Task[Any], _Viewer] = {}

    # --- what changes -----------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Have the viewers know what changed, unless only offsets moved."""
        del image
        if self._viewers and (changed := Changed.by(delta)):
            for viewer in self._viewers.values():
                viewer.changed.add(changed)
                viewer.woken.set()

    def wake(self) -> None:
        """Have all streams look: the leader has changed."""
        self._made.clear()
        for viewer in self._viewers.values():
            viewer.woken.set()

    async def close(self) -> None:
        """End all streams: the node stops."""
        for task in list(self._viewers):
            task.cancel()
        self._quorum.close()

    # --- streams ----------------------------------------------------------------------------------

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream of events until the viewer or the node goes."""
        task = asyncio.current_task()
        if len(self._viewers) >= STREAMS_MAX or task is None:
            why = f"{STREAMS_MAX} pages watch this node already: open the console of another"
            return error_response(KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why))
        if not self._is_following:
            self._is_following = True
            # After the counts, which are shown with what has changed.
            await self._health.current()
            self._loader.add_publisher(self)
        viewer = _Viewer(Rights(self._authorizer, self._identify(request)))
        # Before a proxy that keeps answers back until they end nothing would be live.
        response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        self._viewers[task] = viewer
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(LIFETIME_S):
                    await self._serve(viewer, response)
        finally:
            del self._viewers[task]
        return response

    async def _serve(self, viewer: _Viewer, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        shown: dict[str, Any] = {}
        may_next, written = loop.time(), loop.time()
        while True:
            image = await self._health.current()
            frames, is_state = self._frames(viewer, image, shown)
            now = loop.time()
            if frames or now - written >= HEARTBEAT_S:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await response.write(b"".join(frames) or b": alive\n\n")
                written = loop.time()
                may_next = written + PAUSE_S if is_state else may_next
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await viewer.woken.wait()
            if (early := may_next - loop.time()) > 0:
                await asyncio.sleep(early)

    def _frames(
        self, viewer: _Viewer, image: MetadataImage, shown: dict[str, Any]
    ) -> tuple[list[bytes], bool]:
        """Return what to write, and whether the state has changed, not only offsets and lags.

        `shown` has the documents that were written last, by event.
        """
        changed, rights = viewer.take(), viewer.rights
        before = shown.get("overview", {})
        overview, frame = self._frame(
            image, "overview", rights.requester, lambda: self._cluster.glance(rights, image)
        )
        is_state = bool(changed) or any(
            value != before.get(name)
            for name, value in overview.items()
            if name not in _OF_NO_INTEREST
        )
        frames = []
        if is_state or overview["metadata_offset"] != before["metadata_offset"]:
            shown["overview"] = overview
            frames.append(frame)
        if rights.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            self._quorum.ask_soon(rights.requester)
            quorum, frame = self._frame(image, "quorum", None, self._quorum.document)
            if quorum is not shown.get("quorum"):
                shown["quorum"] = quorum
                frames.append(frame)
        if changed:
            document = _document(changed, rights, image)
            frames.append(encoded("changed", image.offset, document))
        return frames, is_state

    def _frame(
        self,
        image: MetadataImage,
        event: str,
        whose: Requester | None,
        make: Callable[[], dict[str, Any]],
    ) -> tuple[dict[str, Any], bytes]:
        """Return a document and its frame, made once for all viewers who see the same."""
        now = asyncio.get_running_loop().time()
        if image is not self._made_of[0] or now - self._made_of[1] >= PAUSE_S:
            self._made.clear()
            self._made_of = image, now
        found = self._made.get((event, whose))
        if found is None:
            document = make()
            found = document, encoded(event, image.offset, document)
            self._made[event, whose] = found
        return found


def _document(changed: Changed, rights: Rights, image: MetadataImage) -> dict[str, Any]:
    """Return the event `changed`, without the names of topics that the requester may not see."""
    topics = changed.topics
    names = None
    if topics is not None:
        names = sorted(
            name for name in topics if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        )
    flags = {kind: kind in changed.kinds for kind in _KINDS}
    # With a partition of that topic a coordinator may have moved, and nothing else says so.
    flags["groups"] = topics is None or _OFFSETS_TOPIC in topics
    return {"metadata_offset": image.offset, "topics": names, **flags}


def encoded(event: str, offset: int, document: dict[str, Any]) -> bytes:
    """Return an event as it is written. JSON has no line ends, so it is one line of data."""
    return f"id: {offset}\nevent: {event}\ndata: {json.dumps(document)}\n\n".encode()
