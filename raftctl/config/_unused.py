"""Apache Kafka's keys that mean nothing here: accepted with one warning, never an error.

So a file written for Apache Kafka works, while a misspelt key is still found. Source: the broker
configuration reference of Apache Kafka 4.
"""

from __future__ import annotations

_THREADS = "one event loop serves all requests"
_ZOOKEEPER = "the controllers replace ZooKeeper, set controller.quorum.voters"
_SECURITY = "only PLAINTEXT listeners are supported"
_NOT_BUILT = "not supported yet"
_OTHERS = "a key of a plug-in, and classes of Java are not loaded"
_NO_AUTHORIZER = "there is no authorizer, and everybody may do everything"

_EXPLAINED = {
    "super.users": _NO_AUTHORIZER,
    "allow.everyone.if.no.acl.found": _NO_AUTHORIZER,
    "principal.builder.class": _OTHERS,
    "broker.id": "use node.id",
    "log.dir": "use log.dirs",
    "security.inter.broker.protocol": "use inter.broker.listener.name",
    "controller.quorum.append.linger.ms": "appends share a flush without waiting for each other",
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "background.threads": _THREADS,
    "log.cleaner.threads": "one compaction runs at a time",
    "log.cleaner.io.buffer.load.factor": "see log.cleaner.dedupe.buffer.size",
    "num.replica.alter.log.dirs.threads": _THREADS,
    "group.coordinator.threads": _THREADS,
    "group.coordinator.new.enable": "there is one coordinator, and it knows both protocols",
    "group.consumer.regex.refresh.interval.ms": "expressions are looked at when topics change",
}

_FAMILIES = {
    "zookeeper.": _ZOOKEEPER,
    "ssl.": _SECURITY,
    "sasl.": _SECURITY,
    "listener.name.": _SECURITY,
    "security.": _SECURITY,
    "connections.max.reauth.": _SECURITY,
    "delegation.token.": _SECURITY,
    "authorizer.": _NOT_BUILT,
    "password.encoder.": _NOT_BUILT,
    "group.share.": _NOT_BUILT,
    "group.streams.": _NOT_BUILT,
    "share.coordinator.": _NOT_BUILT,
    "log.cleaner.io.": _NOT_BUILT,
    "log.local.": _NOT_BUILT,
    "remote.": _NOT_BUILT,
    "quota.": _NOT_BUILT,
    "replication.quota.": _NOT_BUILT,
    "alter.log.dirs.replication.quota.": _NOT_BUILT,
    "controller.quota.": _NOT_BUILT,
    "client.quota.": _NOT_BUILT,
    "metric.": _NOT_BUILT,
    "metrics.": _NOT_BUILT,
    "telemetry.": _NOT_BUILT,
    "auto.include.jmx.": _NOT_BUILT,
    "inter.broker.protocol.": _NOT_BUILT,
    "rsm.config.": _NOT_BUILT,
    "rlmm.config.": _NOT_BUILT,
    "cruise.control.": _OTHERS,
    "confluent.": "a key of another distribution",
}

_PLAIN_TEXT = """
alter.config.policy.class.name cordoned.log.dirs follower.fetch.last.tiered.offset.enable
group.consumer.assignment.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.min.assignment.interval.ms group.coordinator.background.threads
max.request.partition.size.limit metadata.log.segment.ms
share.fetch.purgatory.purge.interval.requests broker.id.generation.enable
compression.gzip.level compression.lz4.level compression.zstd.level config.providers
connection.failed.authentication.delay.ms controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms controller.quorum.auto.join.enable
controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
controller.socket.timeout.ms create.topic.policy.class.name
delete.records.purgatory.purge.interval.requests early.start.listeners
eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
fetch.share.purgatory.purge.interval.requests group.coordinator.cached.buffer.max.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.dir.failure.timeout.ms log.flush.start.offset.checkpoint.interval.ms
log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms log.preallocate max.connection.creation.rate
max.connections.per.ip max.connections.per.ip.overrides
offsets.commit.required.acks offsets.topic.compression.codec
producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests
queued.max.request.bytes replica.high.watermark.checkpoint.interval.ms
replica.socket.receive.buffer.bytes request.timeout.ms reserved.broker.max.id
server.max.startup.time.ms socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes
socket.send.buffer.bytes
transaction.state.log.load.buffer.size transaction.two.phase.commit.enable
unclean.leader.election.interval.ms unstable.api.versions.enable
unstable.feature.versions.enable
"""

_NO_PLUG_IN = "classes of Java are not loaded, and nothing checks in its place: remove the key"
_REFUSED = {
    "authorizer.class.name": (
        "there is no authorizer, and everybody may do everything: remove the key"
    ),
    "log.preallocate": "files of segments grow as they are written, never ahead: remove the key",
    "remote.log.storage.system.enable": "there is no tiered storage: remove the key",
    "transaction.two.phase.commit.enable": "there is no two-phase commit: remove the key",
    "create.topic.policy.class.name": _NO_PLUG_IN,
    "alter.config.policy.class.name": _NO_PLUG_IN,
    "client.quota.callback.class": _NO_PLUG_IN,
    "config.providers": "values are taken as they stand, not looked up: remove the key",
    "ssl.client.auth": "there is no TLS, and no client is authenticated: remove the key",
}
"""Keys that promise what does not happen: a file with one would be taken for safer than it is."""
_HARMLESS = {"ssl.client.auth": ("none", "requested", "")}
_OFF = ("", "false")
"""Values to which the other keys may be set."""

_PLAIN = frozenset(_PLAIN_TEXT.split())


def why_unused(key: str) -> str | None:
    """Return why a key of Apache Kafka has no effect here; None if it is not known as one."""
    if key in _EXPLAINED:
        return _EXPLAINED[key]
    for family, reason in _FAMILIES.items():
        if key.startswith(family):
            return reason
    return _NOT_BUILT if key in _PLAIN else None


def why_refused(key: str, value: str) -> str | None:
    """Return why a node must not start with this value; None if it may."""
    _, listener, last = key.rpartition("ssl.client.auth")
    name = listener + last if key.startswith("listener.name.") else key
    if name not in _REFUSED or value.strip().lower() in _HARMLESS.get(name, _OFF):
        return None
    return _REFUSED[name]


def unused_keys() -> list[str]:
    """Return the keys known one by one, sorted, without families of keys."""
    return sorted({*_EXPLAINED, *_PLAIN})


def explained_keys() -> list[tuple[str, str]]:
    """(key, or beginning of keys with a dot at its end; why it has no effect), sorted."""
    plain = dict.fromkeys(_PLAIN, _NOT_BUILT)
    return sorted({**plain, **_FAMILIES, **_EXPLAINED}.items())
