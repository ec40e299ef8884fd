"""The console of one node: its parts, and the paths at which they answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.console._cluster import ClusterViews
from raftctl.console._events import EventStreams
from raftctl.console._history import History
from raftctl.console._problems import Problems
from raftctl.console._quorum import Elections, QuorumViews
from raftctl.console._security import SecurityViews
from raftctl.console._topic_health import ClusterHealth
from raftctl.console._topics import TopicViews
from raftctl.console.actions import Actions
from raftctl.console.brokers import BrokerLogs, Brokers, BrokerViews
from raftctl.console.http import API, PATH, PageFiles, answering, nothing_here, protect
from raftctl.failures import OF_PROGRAMS, HandingTo
from raftctl.metadata.configs.topic import topic_defaults
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.config import NodeConfig
    from raftctl.console._quorum import Quorum
    from raftctl.loader import MetadataLoader
    from raftctl.plugins import BrokerClient, ControllerClient
    from raftctl.runtime.api import Runtime
    from raftctl.security import Authorizer, Requester


class Console:
    """What one node serves below /console."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        cluster_id: str,
        quorum: Quorum,
        loader: MetadataLoader,
        controller: ControllerClient,
        runtime: Runtime,
        client: BrokerClient,
        authorizer: Authorizer | None,
        identify: Callable[[web.Request], Requester],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`client` is the way to brokers; `identify` returns who asks; `fail` ends the node."""
        brokers = Brokers(client, lambda: loader.image)
        self._brokers = BrokerViews(client, brokers, runtime.wall_ms)
        self._actions = Actions(brokers, self._brokers, runtime.log.bind(logger="raftctl.console"))
        logs = BrokerLogs(brokers)
        health = ClusterHealth(loader, topic_defaults(config), fail)
        self._files = PageFiles("raftctl.console")
        self._answering = answering(authorizer, identify)
        self._topics = TopicViews(health, logs, self._brokers.configs)
        self.elections = Elections(runtime.wall_ms)
        """To be added to the listeners of the driver."""
        self._quorum = QuorumViews(quorum, self.elections, controller)
        self._problems = Problems(health, self._quorum, self._brokers, brokers, runtime.wall_ms)
        self._cluster = ClusterViews(
            config, cluster_id, quorum, health, self._problems, self._brokers, logs, runtime
        )
        self._security = SecurityViews(lambda: loader.image)
        self._events = EventStreams(
            loader, health, self._cluster, self._quorum, authorizer, identify
        )
        self.elections.changed = self._events.wake
        self._fail = fail
        self._node_log = quorum
        self._health = health
        self._looking_back: asyncio.Task[None] | None = None
        health.begun = self._begin_to_look_back

    def mount(self, app: web.Application) -> None:
        """Add the routes to the node's application, and what protects their answers."""
        app.add_routes(self.routes())
        app.on_response_prepare.append(protect)
        app.on_shutdown.append(self._end_streams)

    async def _end_streams(self, app: web.Application) -> None:
        del app
        if self._looking_back is not None:
            self._looking_back.cancel()
        await self._events.close()

    def _begin_to_look_back(self) -> None:
        looking = self._look_back()
        self._looking_back = asyncio.get_running_loop().create_task(looking)

    async def _look_back(self) -> None:
        """Learn from the log when began what is so when the first viewer comes."""
        with HandingTo(self._fail, OF_PROGRAMS):
            image = await self._health.current()
            history, slices = History(self._node_log, image, self._health), Slices()
            for _ in history.look_back():
                await slices.rest()
            self._health.fill_since(history.topic_since, history.fenced_since)
            self.elections.add_earlier(history.elections)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes; the last ones take what no other does, so they come last."""
        views = {
            "overview": self._cluster.overview,
            "problems": self._problems.problems,
            "quorum": self._quorum.quorum,
            "brokers": self._cluster.brokers,
            "brokers/{broker}": self._cluster.broker,
            "topics": self._topics.topics,
            "topics/{topic}": self._topics.one,
            "topics/{topic}/partitions": self._topics.partitions,
            **self._brokers.views,
            "reassignments": self._topics.reassignments,
            "acls": self._security.acls,
            "quotas": self._security.quotas,
        }
        return [
            web.get(PATH, _to_page),
            web.get(f"{PATH}/", self._files.answer),
            web.get(f"{API}/events", self._events.stream, allow_head=False),
            *(web.get(f"{API}/{path}", self._answering(view)) for path, view in views.items()),
            web.post(f"{API}/actions/{{action}}", self._answering(self._actions.act)),
            web.route("*", f"{API}/{{path:.*}}", nothing_here),
            web.get(f"{PATH}/{{file:.+}}", self._files.answer),
            web.route("*", f"{PATH}/{{path:.*}}", nothing_here),
        ]


async def _to_page(request: web.Request) -> web.Response:
    """Lead to the page. The way is relative: the path may be another before a proxy."""
    del request
    return web.Response(status=308, headers={"Location": "console/"})
