"""The broker plug-in `kafka`: puts the broker's parts together (row P1).

Listeners are bound before the first image comes, so that the node knows what to register; until
then connections are accepted and their requests wait.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.apis import Serve, dispatch
from broker.apis.handler import ApiContext, InternalTopics, MetadataCache, ProducerIds
from broker.apis.handler.fetch_sessions import FetchSessions
from broker.authentication import Authenticator, Verifiers
from broker.envelopes import EnvelopeClient, Envelopes, LocalBroker
from broker.groups import group_coordinator, loaded_groups
from broker.groups.requests import ForgetTopics
from broker.lag import EndOffsets, GroupLag, PartitionOffsets
from broker.log import LogManager, LogMetrics, dump
from broker.log.settings import log_settings
from broker.metrics import BrokerState, RequestSpans, RequestTimes
from broker.protocol.codec import compile_newest
from broker.protocol.versions import ApiKey
from broker.quotas import ClientQuotas, Windows, load_callback
from broker.replication import ReplicaManager, ReplicaMetrics
from broker.server import ConnectionLimits, ListenerConfigs, Listeners
from broker.telemetry import client_telemetry
from broker.transactions import TransactionCoordinator, TransactionVerifier
from raftctl.metadata.configs.topic import topic_defaults
from raftctl.security.delegation_tokens import TokenSecret
from raftctl.security.tls import NodeTls
from raftctl.tracing import RequestIds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.request_context import RequestContext
    from broker.types import TopicPartition
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import Endpoint
    from raftctl.plugins import Broker, BrokerClient, BrokerContext, LogTool
    from raftctl.runtime.api import Runtime


FIRST_ASKED = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
"""What producers and consumers ask: made ready before they do."""


def client_quotas(config: NodeConfig) -> ClientQuotas:
    """Make the quotas of clients as the node is configured; ConfigError for an unknown callback."""
    return ClientQuotas(
        load_callback(config.client_quota_callback_class, config.written),
        Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
        Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        ),
    )


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


class KafkaBroker:
    """Durable partitions served over the Kafka protocol; see `raftctl.plugins.Broker`."""

    log_tool: LogTool = dump
    """Shows the partitions' files to people."""

    @staticmethod
    def preload() -> None:
        """Make ready what producers and consumers ask first."""
        compile_newest(FIRST_ASKED)

    @staticmethod
    def broker_client(
        config: NodeConfig,
        runtime: Runtime,
        image: Callable[[], MetadataImage],
        broker: Broker | None,
    ) -> BrokerClient:
        """Return a way to brokers; see `raftctl.plugins.MakeClient`."""
        local = broker.local if isinstance(broker, KafkaBroker) else None
        return EnvelopeClient(config, runtime, image, local)

    def __init__(self, context: BrokerContext) -> None:
        config = context.config
        self._context = context
        self._log = context.runtime.log.bind(logger="broker", node_id=config.node_id)
        self._requests_log = self._log.bind(logger="broker.apis")
        defaults, settings = topic_defaults(config), log_settings(config)
        logs = LogManager(context.runtime, config.log_dirs, defaults, context.fail, settings)
        self.replicas = ReplicaManager(context, logs)
        """For others to read only."""
        LogMetrics(logs, context.runtime.files, context.metrics)
        ReplicaMetrics(self.replicas, config.metrics_partitions, context.metrics)
        self._metadata = MetadataCache()
        self._producer_ids = ProducerIds(context.controller, config.node_id, context.broker_epoch)
        self._internal_topics = InternalTopics(config, context.controller, self._metadata)
        self._transactions = TransactionCoordinator(
            config,
            self.replicas,
            context.runtime.wall_ms,
            context.fail,
            context.runtime.log,
            self.replicas.connector,
        )
        self._verifier = TransactionVerifier(
            config,
            lambda: self._metadata.image,
            self.replicas.partitions,
            self._transactions,
            context.fail,
            self.replicas.connector,
        )
        self._groups = group_coordinator(context, self.replicas)
        self._sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, context.runtime.random
        )
        self._quotas = client_quotas(config)
        self._requests = context.runtime.worker("requests")
        self._verifiers: list[Verifiers] = []
        self._limits = ConnectionLimits(config, context.fail, self.replicas.turn)
        self._limits.counts.serve(context.metrics)
        tls = NodeTls(context.runtime, self._log)
        log = self._log.bind(logger="broker.server")
        times = RequestTimes(context.metrics, self._requests_log, config.slow_request_ms)
        self._state = BrokerState(
            config.node_id,
            config.inter_broker_listener,
            lambda: self._metadata.image,
            context.has_session,
            context.metrics,
        )
        self._ends, self._lag = self._lag_of_groups()
        self._listeners = Listeners(
            config,
            self._limits,
            log,
            context.runtime.sender,
            tls,
            self._sent_to(times),
            RequestIds(config.node_id, context.runtime.wall_ms()),
        )
        self._telemetry = client_telemetry(
            config,
            context.metrics,
            context.runtime.uuid,
            self._log.bind(logger="broker.telemetry"),
            _loop_ms,
        )
        self._listener_configs = ListenerConfigs(config, tls, self._reconfigure, log)

    async def start(self) -> Sequence[Endpoint]:
        """Binds the listeners and recovers the logs."""
        endpoints = await self._listeners.bind(self._serve_on)
        for verifiers in self._verifiers:
            await verifiers.start()
        self._requests.submit(self.preload)
        await self.replicas.start()
        if self._context.config.metrics_group_lag_interval_ms:
            self._lag.start()
        return endpoints

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Takes up the newer image; the first one opens the listeners for requests."""
        self.replicas.apply_delta(delta, image)
        self._metadata.publish(image)
        self._transactions.publish(image)
        self._groups.publish(image)
        self._quotas.publish(image)
        if self._telemetry is not None:
            self._telemetry.publish(delta, image)
        self._listener_configs.publish(image)
        self._limits.publish(image)
        if delta.deleted_topics:
            deleted = frozenset(topic.name for topic in delta.deleted_topics.values())
            self._groups.notify_all(ForgetTopics(deleted))
        self._limits.begin()

    async def stop(self) -> None:
        """Closes the listeners, then the partitions."""
        self._state.is_stopping = True
        self._listeners.close()
        for verifiers in self._verifiers:
            verifiers.close()
        self._producer_ids.close()
        self._internal_topics.close()
        await self._verifier.stop()
        await self._transactions.stop()
        await self._lag.stop()
        await self._ends.stop()
        await self._groups.stop()
        await self.replicas.stop()
        self._requests.close()

    def _reconfigure(self, config: NodeConfig) -> None:
        """Take up configs of listeners, also for the connections to other brokers."""
        self._listeners.reconfigure(config)
        self.replicas.connector.reconfigure(config)

    @property
    def local(self) -> LocalBroker:
        """This broker, as requesters of other connections meet it."""
        config = self._context.config
        listener = config.inter_broker_listener
        serve = partial(dispatch, self._api_context(listener))
        return LocalBroker(
            serve, listener, config.security_protocol(listener), self._requests.submit
        )

    def _sent_to(self, times: RequestTimes) -> Callable[[RequestContext], None]:
        """Return what is called with each request that has been answered."""
        if self._context.tracer is None:
            return times.sent
        spans = RequestSpans(self._context.tracer)

        def sent(context: RequestContext) -> None:
            times.sent(context)
            spans.sent(context)

        return sent

    def _serve_on(self, listener: str) -> Serve:
        """Return the function that serves a listener's frames."""
        config, runtime = self._context.config, self._context.runtime
        serve: Serve
        if listener == config.inter_broker_listener:
            serve = Envelopes(self.local, self._context.authorizer).serve
        else:
            serve = partial(dispatch, self._api_context(listener))
        settings = config.listener_security(listener).sasl
        if settings is None:
            return serve
        verifiers = Verifiers(
            config, settings, lambda: self._metadata.image, runtime, self._context.cluster_id
        )
        self._verifiers.append(verifiers)
        delay_ms = config.connection_failed_authentication_delay_ms
        return Authenticator(
            settings,
            verifiers,
            serve,
            wall_ms=runtime.wall_ms,
            failure_delay_ms=delay_ms,
            on_login=self._limits.counts[listener].logged_in,
        ).serve

    def _lag_of_groups(self) -> tuple[EndOffsets, GroupLag]:
        context, replicas, groups = self._context, self.replicas, self._groups

        def exists(partition: TopicPartition) -> bool:
            topics = self._metadata.image.topics
            return topics.partition(partition.topic, partition.partition) is not None

        def image() -> MetadataImage:
            return self._metadata.image

        ends = EndOffsets(
            context.config, image, replicas.partitions, context.fail, replicas.connector
        )
        lag = GroupLag(
            lambda: loaded_groups(groups),
            groups.has,
            exists,
            ends.of,
            context.config.metrics_group_lag_interval_ms / 1000,
            context.fail,
        )
        context.metrics.add_details(
            PartitionOffsets(replicas.partitions, replicas.conditions, image)
        )
        context.metrics.add_details(lag)
        return ends, lag

    def _has_session(self) -> bool:
        """While an image is being taken up, this broker may lead what it says that others do."""
        return self.replicas.follows_image and self._context.has_session()

    def _api_context(self, listener: str) -> ApiContext:
        return ApiContext(
            config=self._context.config,
            cluster_id=self._context.cluster_id,
            listener=listener,
            replicas=self.replicas,
            prepare=self.replicas.preparing.prepare,
            metadata=self._metadata,
            controller=self._context.controller,
            producer_ids=self._producer_ids,
            sessions=self._sessions,
            internal_topics=self._internal_topics,
            transactions=self._transactions,
            verifier=self._verifier,
            groups=self._groups,
            wall_ms=self._context.runtime.wall_ms,
            log=self._requests_log,
            aside=self._requests.submit,
            has_session=self._has_session,
            listener_configs=self._listener_configs,
            authorizer=self._context.authorizer,
            token_secret=TokenSecret.of(self._context.config),
            quotas=self._quotas,
            telemetry=self._telemetry,
            tracer=self._context.tracer,
        )
