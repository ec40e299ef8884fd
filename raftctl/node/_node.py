"""One node: puts the parts together for its roles, starts them, stops them in order.

A node with the controller role is a voter if the quorum says so; every other node is an observer. A
node with both roles has one replica of the metadata log for both. The node decides nothing: what a
part may do is in the part.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from aiohttp import web

from raftctl.admin import (
    AdminApi,
    ControllerMetrics,
    HealthApi,
    LoggersApi,
    PartitionCounts,
    Problem,
    Readiness,
)
from raftctl.console import Console
from raftctl.controller import ControllerConfig, QuorumController
from raftctl.controller_channel import QuorumControllerClient
from raftctl.errors import ConfigError, ErrorCode, InvariantViolation, KafkaError
from raftctl.kv import BODY_BYTES_MAX, KeyIndex, KvApi, KvEventLog, KvFollower, KvWatches
from raftctl.loader import LoaderMetrics, MetadataLoader, Snapshots, Snapshotter, StateHashes
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.features import supported_ranges
from raftctl.metadata.requests import ControllerRequest
from raftctl.metadata.requests.kv import KvPutRequest
from raftctl.metrics import Metrics
from raftctl.node._controller_service import ControllerService
from raftctl.node._health_checks import (
    problems_of_broker,
    problems_of_replica,
    replicas_out_of_sync,
)
from raftctl.node._http_access import requester_of
from raftctl.node._http_listener import HttpListener, scram_credentials
from raftctl.node._http_requests import number_requests
from raftctl.node._process_metrics import ProcessMetrics
from raftctl.node._registrations import (
    BrokerLifecycle,
    BrokerRunner,
    ControllerRegistrar,
    VoterEndpoint,
)
from raftctl.node._traces import start_tracing
from raftctl.plugins import BrokerContext, LazyBrokerClient, load_broker
from raftctl.quorum import (
    Peers,
    RaftDriver,
    RaftMetrics,
    bootstrap_servers,
    make_core,
    open_replica,
)
from raftctl.raft import messages
from raftctl.raft.messages import NO_NODE, LeaderEndpoint, Voter
from raftctl.rpc import ChannelCounts, RpcClient, RpcServer, start_http
from raftctl.security import load_authorizer
from raftctl.security.sasl.login import node_login
from raftctl.security.tls import NodeTls
from raftctl.storage import load_first_records
from raftctl.tracing import RequestIds

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.config import NodeConfig
    from raftctl.config.addresses import Listener
    from raftctl.plugins import Broker
    from raftctl.quorum import Replica
    from raftctl.raft.messages import NodeId
    from raftctl.runtime.api import Runtime
    from raftctl.security import Authorizer
    from raftctl.tracing import Tracer

RECORDED_LINE_MAX = 400


async def run_node(config: NodeConfig, runtime: Runtime, *, owns_loop: bool = False) -> None:
    """Run a node until it is cancelled (a clean stop) or fails (raises what went wrong).

    A node that `owns_loop` takes every exception nobody handles there, which may end it.
    """
    node = Node(config, runtime)
    if owns_loop:
        asyncio.get_running_loop().set_exception_handler(node.on_unhandled)
    await node.run()


class Node:
    """The parts of one running node."""

    def __init__(self, config: NodeConfig, runtime: Runtime) -> None:
        self.config = config
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolves with the exception that ended the node."""
        self._runtime = runtime
        self._log = runtime.log.bind(logger="raftctl", node_id=config.node_id)
        self._cleanup = contextlib.AsyncExitStack()
        self._tls = NodeTls(runtime, self._log)
        self._cleanup.callback(self._tls.close)
        self._request_ids = RequestIds(config.node_id, runtime.wall_ms())
        """Of requests over HTTP."""
        self.metrics = Metrics(config.metrics_series_max)
        self.features = supported_ranges()
        """The ranges of feature levels that this node supports."""
        self.driver: RaftDriver | None = None
        self.loader: MetadataLoader | None = None
        self.service: ControllerService | None = None
        self._runner: BrokerRunner | None = None
        self._has_session: Callable[[], bool] = lambda: False
        """Whether the broker of this node has one with the controller."""
        self.hashes = StateHashes(runtime)
        self.tracer: Tracer | None = None
        """None while traces are off."""
        self.authorizer: Authorizer | None = None
        """Of the controller and of the broker. None where everybody may do everything."""
        self.broker: Broker | None = None
        """The broker. This part and those above are None until they are made, and are for
        observers."""

    async def run(self) -> None:
        """Run until cancelled or until the node fails; see `run_node`."""
        try:
            await self.start()
            await self.ended
        finally:
            await self._stop_though_cancelled()

    async def start(self) -> None:
        """Start every part; ConfigError leaves the disk as it was.

        What is started registers how to stop it, and `stop` goes through that in reverse.
        """
        config, runtime = self.config, self._runtime
        await self._check_addresses()
        plugin = load_broker(config.broker_plugin) if config.is_broker else None
        self.authorizer = self._make_authorizer()
        tracing = start_tracing(config, runtime, self._log)
        if tracing is not None:
            self.tracer = tracing.tracer
            self._cleanup.push_async_callback(tracing.stop)
        worker = runtime.worker("metadata-log", short_calls=True)
        self._cleanup.callback(worker.close)
        replica = await worker.submit(lambda: open_replica(config, runtime))
        self._cleanup.callback(replica.release)
        self._log.info("log_recovered", end_offset=replica.log.end_offset)
        if replica.damaged_note is not None:
            self._log.warning("recovery_point_damaged", path=replica.damaged_note)
        peers = self._connect(replica)
        snapshot_worker = runtime.worker("metadata-snapshots")
        self._cleanup.callback(snapshot_worker.close)
        snapshots = Snapshots(replica.snapshots, snapshot_worker, runtime.log)
        self.driver = driver = RaftDriver(
            core=make_core(config, replica, runtime),
            log=replica.log,
            states=replica.states,
            snapshots=snapshots,
            worker=worker,
            peers=peers,
            runtime=runtime,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            fail=self._fail,
        )
        self._cleanup.push_async_callback(driver.stop)
        RaftMetrics(driver, self.metrics)
        process = self._process = ProcessMetrics(runtime.usage, runtime.idle_s, self.metrics)
        process.start()
        self._cleanup.callback(process.stop)
        self.loader = loader = MetadataLoader(driver, replica.image, self._fail, self.features)
        self._cleanup.callback(loader.stop)
        console = self._make_console(replica, driver, loader, peers)
        driver.add_listener(console.elections)
        LoaderMetrics(loader, runtime.wall_ms, self.metrics)
        if self.authorizer is not None:
            # Before the others, so that nobody acts on an image whose rules are not in force yet.
            loader.add_publisher(self.authorizer)
        if config.is_controller:
            await self._start_controller(replica, driver, loader, peers, console)
            self._register_controller(replica, driver, loader, peers)
            self._watch_endpoint(replica, driver, peers)
        else:
            driver.add_listener(loader)
        self._start_snapshots(replica, driver, loader, snapshots)
        driver.start()
        if plugin is not None:
            controller = self._controller_client(driver, peers)
            self._start_broker(plugin, replica, driver, loader, controller)
            await self._serve_http(replica, driver, loader, console)
        self.metrics.start()
        self._cleanup.callback(self.metrics.stop)
        self._log.info("node_started", roles=",".join(config.process_roles))

    async def stop(self) -> None:
        """Stop what was started, the last first; safe to call once after a failed `start`."""
        await self._cleanup.aclose()

    async def _stop_though_cancelled(self) -> None:
        """Stop, though asked once more to end: then without waiting for leaders to move away.

        To leave off in the middle would leave the broker's logs open, to be recovered at the start.
        """
        stopping = asyncio.ensure_future(self.stop())
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                if self._runner is not None:
                    self._runner.hurry()
        stopping.result()

    def on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle exceptions of a loop that belongs to this node."""
        error = context.get("exception")
        self._log.error("unhandled", message=context.get("message"), exc_info=error)
        if isinstance(error, InvariantViolation):
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The one root at which everything that goes wrong for good arrives."""
        if isinstance(error, InvariantViolation) and self.driver is not None:
            self.driver.halt()
        if self.ended.done():
            return
        self.ended.set_exception(error)
        if not isinstance(error, ConfigError | KafkaError):
            self._log.error("node_failed", exc_info=error)
            self._log_flight_recorder()

    def _log_flight_recorder(self) -> None:
        for entry in self.driver.flight_recorder if self.driver is not None else ():
            self._log.error("before_failure", what=repr(entry)[:RECORDED_LINE_MAX])

    def _make_authorizer(self) -> Authorizer | None:
        """ConfigError if there is none of the configured name, or a key of its own is wrong."""
        name = self.config.authorizer_class_name
        log = self._log.bind(logger="raftctl.authorizer")
        return load_authorizer(name, self.config.written, log) if name else None

    async def _check_addresses(self) -> None:
        """ConfigError if a port is taken, while nothing on disk has been touched."""
        loop = asyncio.get_running_loop()
        for listener in self.config.listeners:
            host, port = listener.host, listener.port
            try:
                # Bound, not served: a client is refused rather than dropped.
                probe = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
            except OSError as error:
                self._check_not_running()
                why = error.strerror or str(error)
                complaint = f"listeners: {host}:{port} cannot be bound ({why}); choose another"
                raise ConfigError(complaint) from None
            probe.close()

    def _check_not_running(self) -> None:
        """ConfigError that names the process if one has this node's directories already."""
        files = self._runtime.files
        for directory in self.config.directories:
            if files.exists(f"{directory}/.lock"):
                files.lock_directory(directory).release()

    def _start_snapshots(
        self,
        replica: Replica,
        driver: RaftDriver,
        loader: MetadataLoader,
        snapshots: Snapshots,
    ) -> None:
        """After the loader has been added to the driver, which makes an image first."""
        hashes = self.hashes
        snapshotter = Snapshotter(
            driver, loader, snapshots, hashes, self._runtime, self.config, self._fail
        )
        if replica.snapshot_id is not None and replica.state_hash is not None:
            path = snapshots.path(replica.snapshot_id)
            hashes.taken(replica.image.offset, replica.state_hash, path)
        hashes.marks_go_to(snapshotter)
        loader.add_publisher(hashes)
        driver.add_listener(hashes)
        driver.add_listener(snapshotter)
        self._cleanup.push_async_callback(snapshotter.stop)

    def _make_console(
        self, replica: Replica, driver: RaftDriver, loader: MetadataLoader, peers: Peers
    ) -> Console:
        config, runtime = self.config, self._runtime
        client = LazyBrokerClient(config, runtime, lambda: loader.image, lambda: self.broker)
        self._cleanup.push_async_callback(client.close)
        return Console(
            config=self.config,
            cluster_id=replica.cluster_id,
            quorum=driver,
            loader=loader,
            controller=self._controller_client(driver, peers),
            runtime=self._runtime,
            client=client,
            authorizer=self.authorizer,
            identify=requester_of,
            fail=self._fail,
        )

    def _connect(self, replica: Replica) -> Peers:
        """The ways to other nodes, made as they become known."""
        name = self.config.controller_listener_names[0]
        security = self.config.listener_security(name)
        tls = None if security.tls is None else self._tls.client(security.tls, name)
        login = node_login(security, self._runtime)
        if login is not None:
            self._cleanup.callback(login.close)

        counts = ChannelCounts()
        counts.serve(self.metrics)

        def connect(node_id: NodeId, endpoint: LeaderEndpoint) -> RpcClient:
            return RpcClient(
                self._runtime,
                endpoint.host,
                endpoint.port,
                cluster_id=replica.cluster_id,
                node_id=self.config.node_id,
                peer_id=max(node_id, NO_NODE),  # a stand-in stands for any node
                tls=tls,
                login=login,
                counts=counts,
            )

        own = self._own_voter(replica)
        servers = bootstrap_servers(self.config)
        peers = Peers(
            connect,
            None if own is None else (own.replica.node_id, LeaderEndpoint(own.host, own.port)),
            {stand_in: LeaderEndpoint(one.host, one.port) for stand_in, one in servers.items()},
        )
        self._cleanup.push_async_callback(peers.close)
        return peers

    def _own_voter(self, replica: Replica) -> Voter | None:
        """What the voters' record says of this node if it votes; None for a broker."""
        endpoint = self.config.reachable_controller_endpoint
        return None if endpoint is None else Voter(replica.local, endpoint.host, endpoint.port)

    # --- controller -------------------------------------------------------------------------------

    async def _start_controller(
        self,
        replica: Replica,
        driver: RaftDriver,
        loader: MetadataLoader,
        peers: Peers,
        console: Console,
    ) -> None:
        config = self.config
        first = load_first_records(self._runtime.files, config.metadata_directory)
        address = config.controller_listeners[0]
        listener = await self._http_listener(address, replica, loader, first)
        rpc = RpcServer(
            self._runtime,
            cluster_id=replica.cluster_id,
            node_id=config.node_id,
            fail=self._fail,
            login=listener.login,
            login_bytes_max=listener.login_bytes_max,
        )
        changes = (*get_args(ControllerRequest), *get_args(messages.OperatorRequest))
        refusals = dict.fromkeys(changes, ErrorCode.NOT_CONTROLLER)
        self.service = service = ControllerService(
            node_id=config.node_id,
            controller=QuorumController(
                ControllerConfig.of(config, replica.cluster_id),
                self._runtime.random,
                lambda: driver.core.voters.ids,
                unpack_records(*first),
                self._runtime.wall_ms,
            ),
            driver=driver,
            loader=loader,
            runtime=self._runtime,
            idle_interval_ms=config.metadata_max_idle_interval_ms,
            fail=self._fail,
            fence=partial(rpc.fence, refusals),
            authorizer=self.authorizer,
            tracer=self.tracer,
        )
        self._cleanup.callback(service.stop)
        self.hashes.append_with(service.append_own)
        for request in get_args(messages.Request):
            rpc.on(request, driver.answer)
        for request in get_args(ControllerRequest):
            rpc.on(request, service.answer)
        rpc.on_batch(KvPutRequest, service.answer_puts)
        counts = PartitionCounts(self._fail, lambda: driver.is_leader)
        loader.add_publisher(counts)
        api = AdminApi(
            node_id=config.node_id,
            cluster_id=replica.cluster_id,
            driver=driver,
            loader=loader,
            hashes=self.hashes,
            counts=counts,
        )
        health = self._health(driver, loader)
        ControllerMetrics(driver, loader, counts, service.times, self.metrics)
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=listener.middlewares)
        loggers = LoggersApi(config.node_id, self._log)
        number_requests(app, self._request_ids, self.tracer)
        app.add_routes((*health.routes(), *api.routes(), *loggers.routes()))
        self._mount_kv(app, service, driver, loader, peers)
        console.mount(app)
        rpc.mount(app)
        runner, _ = await start_http(app, address.host, address.port, wrap=listener.wrap)
        self._cleanup.push_async_callback(runner.cleanup)
        self._cleanup.push_async_callback(driver.resign)

    def _mount_kv(
        self,
        app: web.Application,
        service: ControllerService,
        driver: RaftDriver,
        loader: MetadataLoader,
        peers: Peers,
    ) -> None:
        follower = KvFollower(loader)
        loader.add_publisher(follower)
        index = KeyIndex(follower)
        loader.add_publisher(index)
        api = KvApi(
            service=service,
            driver=driver,
            peers=peers,
            follower=follower,
            index=index,
            runtime=self._runtime,
            authorizer=self.authorizer,
            requester=requester_of,
        )
        app.add_routes(api.routes())
        events = KvEventLog(driver)
        KvWatches(events, follower, api.confirmed_image, api.rights).mount(app)

        async def end_waiting(app: web.Application) -> None:
            follower.close()

        app.on_shutdown.append(end_waiting)

    def _watch_endpoint(self, replica: Replica, driver: RaftDriver, peers: Peers) -> None:
        voter = self._own_voter(replica)
        if voter is not None:
            watch = VoterEndpoint(
                voter=voter,
                driver=driver,
                peers=peers,
                runtime=self._runtime,
                timeout_ms=self.config.controller_quorum_request_timeout_ms,
                fail=self._fail,
            )
            driver.add_listener(watch)
            self._cleanup.push_async_callback(watch.stop)

    def _register_controller(
        self, replica: Replica, driver: RaftDriver, loader: MetadataLoader, peers: Peers
    ) -> None:
        registrar = ControllerRegistrar(
            controller_id=self.config.node_id,
            cluster_id=replica.cluster_id,
            features=self.features,
            settings=ControllerConfig.of(self.config, replica.cluster_id).settings(),
            controller=self._controller_client(driver, peers),
            driver=driver,
            runtime=self._runtime,
            fail=self._fail,
        )
        loader.add_publisher(registrar)
        driver.add_listener(registrar)
        self._cleanup.push_async_callback(registrar.stop)

    def _controller_client(self, driver: RaftDriver, peers: Peers) -> QuorumControllerClient:
        return QuorumControllerClient(
            peers, lambda: driver.leader_id, self._runtime, lambda: peers.in_turn
        )

    # --- broker -----------------------------------------------------------------------------------

    def _start_broker(
        self,
        plugin: type[Broker],
        replica: Replica,
        driver: RaftDriver,
        loader: MetadataLoader,
        controller: QuorumControllerClient,
    ) -> None:
        config = self.config
        lifecycle = BrokerLifecycle(
            config=config,
            cluster_id=replica.cluster_id,
            log_directories=tuple(replica.log_directory_ids.values()),
            controller=controller,
            loader=loader,
            runtime=self._runtime,
            fail=self._fail,
        )
        self._has_session = lifecycle.has_session
        self.broker = broker = plugin(
            BrokerContext(
                config=config,
                runtime=self._runtime,
                cluster_id=replica.cluster_id,
                controller=controller,
                broker_epoch=lambda: lifecycle.broker_epoch,
                active_controller_id=lambda: driver.leader_id,
                fail=self._fail,
                directory_ids=replica.log_directory_ids,
                directory_failed=lifecycle.directory_failed,
                stopped_cleanly=lifecycle.stopped_cleanly,
                has_session=lifecycle.has_session,
                authorizer=self.authorizer,
                metrics=self.metrics,
                tracer=self.tracer,
            )
        )
        self._runner = runner = BrokerRunner(broker, lifecycle, loader, self._runtime, self._fail)
        self._cleanup.push_async_callback(self._stop_broker, runner)
        runner.start()

    def _readiness(self, driver: RaftDriver, loader: MetadataLoader) -> Readiness:
        """What says whether this node serves, in all its roles."""
        node_id, is_broker = self.config.node_id, self.config.is_broker

        def look() -> list[Problem]:
            found = problems_of_replica(driver, loader)
            if is_broker:
                found += problems_of_broker(node_id, loader.image, self._has_session)
            return found

        async def look_before() -> list[Problem]:
            return await replicas_out_of_sync(node_id, loader.image) if is_broker else []

        return Readiness(look, asyncio.get_running_loop().time, look_before)

    def _health(self, driver: RaftDriver, loader: MetadataLoader) -> HealthApi:
        worker = self._runtime.worker("metrics")
        self._cleanup.callback(worker.close)

        def look() -> None:
            self.metrics.load()
            self._process.look()

        readiness = self._readiness(driver, loader)
        return HealthApi(self.metrics, readiness, lambda: worker.submit(look))

    async def _serve_http(
        self, replica: Replica, driver: RaftDriver, loader: MetadataLoader, console: Console
    ) -> None:
        """Serve signs of life, metrics and the console where a broker has a listener for them."""
        address = self.config.http_listener
        if address is None:
            return
        listener = await self._http_listener(address, replica, loader, (b"", 0))
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=listener.middlewares)
        number_requests(app, self._request_ids, self.tracer)
        app.add_routes(self._health(driver, loader).routes())
        app.add_routes(LoggersApi(self.config.node_id, self._log).routes())
        console.mount(app)
        runner, port = await start_http(
            app, address.host, address.port, key="http.listener", wrap=listener.wrap
        )
        self._cleanup.push_async_callback(runner.cleanup)
        self._log.info("http_listening", address=f"{address.host}:{port}")

    async def _http_listener(
        self,
        address: Listener,
        replica: Replica,
        loader: MetadataLoader,
        first_records: tuple[bytes, int],
    ) -> HttpListener:
        """What stands before the handlers of an address, ready to let clients in."""
        listener = HttpListener(
            address,
            self.config,
            self._runtime,
            self._tls,
            self.authorizer,
            replica.cluster_id,
            scram_credentials(lambda: loader.image, first_records),
        )
        self._cleanup.callback(listener.close)
        await listener.start()
        return listener

    async def _stop_broker(self, runner: BrokerRunner) -> None:
        failed = self.ended.done() and not self.ended.cancelled()
        await runner.stop(drain=not failed)
