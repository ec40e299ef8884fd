"""Apache Kafka's keys that mean nothing here: accepted with one warning, or refused.

So a file written for Apache Kafka works, while a misspelt key is still found. What promises
protection, or anything else to rely on, is refused. Source: the broker configuration reference of
Apache Kafka 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_THREADS = "one event loop serves all requests"
_ZOOKEEPER = "the controllers replace ZooKeeper, set controller.quorum.voters"
_NOT_BUILT = "not supported yet"
_OTHERS = "a key of a plug-in, and classes of Java are not loaded"

_EXPLAINED = {
    "broker.id": "use node.id",
    "log.dir": "use log.dirs",
    "controller.quorum.append.linger.ms": "appends share a flush without waiting for each other",
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "background.threads": _THREADS,
    "log.cleaner.threads": "one compaction runs at a time",
    "log.cleaner.io.buffer.load.factor": "see log.cleaner.dedupe.buffer.size",
    "num.replica.alter.log.dirs.threads": _THREADS,
    "group.coordinator.threads": _THREADS,
    "group.coordinator.new.enable": "there is one coordinator, and it knows both protocols",
}

_FAMILIES = {
    "zookeeper.": _ZOOKEEPER,
    "password.encoder.": _NOT_BUILT,
    "group.share.": _NOT_BUILT,
    "group.streams.": _NOT_BUILT,
    "share.coordinator.": _NOT_BUILT,
    "log.cleaner.io.": _NOT_BUILT,
    "log.local.": _NOT_BUILT,
    "remote.": _NOT_BUILT,
    "replication.quota.": _NOT_BUILT,
    "alter.log.dirs.replication.quota.": _NOT_BUILT,
    "metric.": _NOT_BUILT,
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
controlled.shutdown.max.retries
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
log.message.timestamp.difference.max.ms log.preallocate
metrics.num.samples metrics.recording.level metrics.sample.window.ms
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

_NO_PLUG_IN = "classes of Java are not loaded, and nothing checks in its place"
_NO_KERBEROS = "GSSAPI is not supported"
_ONE_MODULE = (
    "a login module is one of a listener and a mechanism: write it as "
    "listener.name.NAME.MECHANISM.sasl.jaas.config"
)
_NO_LOGIN = "tokens are not fetched so"
_OPENSSL = "OpenSSL does this, and has no such choice"
_VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
_LOGINS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_SAME_NAMES = "a certificate that a config brings must have the names of the one before it"
_OFF = ("", "false")

_REFUSED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "log.preallocate": ("files of segments grow as they are written, never ahead", _OFF),
    "remote.log.storage.system.enable": ("there is no tiered storage", _OFF),
    "transaction.two.phase.commit.enable": ("there is no two-phase commit", _OFF),
    "create.topic.policy.class.name": (_NO_PLUG_IN, _OFF),
    "alter.config.policy.class.name": (_NO_PLUG_IN, _OFF),
    "config.providers": ("values are taken as they stand, not looked up", _OFF),
    "principal.builder.class": (
        _NO_PLUG_IN,
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    ),
    "security.providers": (_NO_PLUG_IN, _OFF),
    "ssl.engine.factory.class": (_NO_PLUG_IN, _OFF),
    "ssl.provider": (_OPENSSL, _OFF),
    "ssl.secure.random.implementation": (_OPENSSL, _OFF),
    "ssl.keymanager.algorithm": (_OPENSSL, ("SunX509", "NewSunX509", "PKIX")),
    "ssl.trustmanager.algorithm": (_OPENSSL, ("SunX509", "PKIX")),
    "ssl.allow.dn.changes": (_SAME_NAMES, _OFF),
    "ssl.allow.san.changes": (_SAME_NAMES, _OFF),
    "sasl.jaas.config": (_ONE_MODULE, _OFF),
    "sasl.login.class": (_NO_PLUG_IN, _OFF),
    "sasl.client.callback.handler.class": (_NO_PLUG_IN, _OFF),
    "sasl.server.callback.handler.class": (_NO_PLUG_IN, ("", *_VALIDATORS)),
    "sasl.login.callback.handler.class": (_NO_PLUG_IN, ("", *_LOGINS)),
    "sasl.login.connect.timeout.ms": (_NO_LOGIN, _OFF),
    "sasl.login.read.timeout.ms": (_NO_LOGIN, _OFF),
    "sasl.login.retry.backoff.ms": (_NO_LOGIN, ("100",)),
    "sasl.login.retry.backoff.max.ms": (_NO_LOGIN, ("10000",)),
    "sasl.login.refresh.window.factor": (_NO_LOGIN, ("0.8",)),
    "sasl.login.refresh.window.jitter": (_NO_LOGIN, ("0.05",)),
    "sasl.login.refresh.min.period.seconds": (_NO_LOGIN, ("60",)),
    "sasl.login.refresh.buffer.seconds": (_NO_LOGIN, ("300",)),
    "sasl.kerberos.service.name": (_NO_KERBEROS, _OFF),
    "sasl.kerberos.kinit.cmd": (_NO_KERBEROS, ("/usr/bin/kinit",)),
    "sasl.kerberos.ticket.renew.window.factor": (_NO_KERBEROS, ("0.8",)),
    "sasl.kerberos.ticket.renew.jitter": (_NO_KERBEROS, ("0.05",)),
    "sasl.kerberos.min.time.before.relogin": (_NO_KERBEROS, ("60000",)),
    "sasl.kerberos.principal.to.local.rules": (_NO_KERBEROS, ("DEFAULT",)),
    "sasl.oauthbearer.header.urlencode": (_NO_LOGIN, _OFF),
    "sasl.oauthbearer.scope": (_NO_LOGIN, _OFF),
    "sasl.oauthbearer.scope.claim.name": (
        "the scopes of a token decide nothing, rules of access do",
        ("scope",),
    ),
    "sasl.oauthbearer.client.credentials.client.id": (_NO_LOGIN, _OFF),
    "sasl.oauthbearer.client.credentials.client.secret": (_NO_LOGIN, _OFF),
    "sasl.oauthbearer.jwt.retriever.class": (
        _NO_PLUG_IN,
        ("org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",),
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        _NO_PLUG_IN,
        ("org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",),
    ),
    "delegation.token.master.key": ("its name is delegation.token.secret.key", _OFF),
}
"""Keys that promise what does not happen: (why, values that promise nothing). A file with another
value would be taken for safer than it is."""

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
    """Return why a node must not start with this value, and the remedy; None if it may."""
    if key not in _REFUSED or is_harmless(key, value):
        return None
    return f"{_REFUSED[key][0]}: remove the key"


def is_harmless(key: str, value: str) -> bool:
    """Return whether a key that is refused has a value that asks for nothing."""
    given = value.strip().lower()
    return key in _REFUSED and given in {one.lower() for one in (*_REFUSED[key][1], "")}


def refused_keys() -> list[tuple[str, str, tuple[str, ...]]]:
    """(key, why it is refused, the values that are not), sorted."""
    return sorted((key, why, harmless) for key, (why, harmless) in _REFUSED.items())


def unused_keys() -> list[str]:
    """Return the keys known one by one, sorted, without families of keys."""
    return sorted({*_EXPLAINED, *_PLAIN, *_REFUSED})


def explained_keys() -> list[tuple[str, str]]:
    """(key, or beginning of keys with a dot at its end; why it has no effect), sorted."""
    plain = dict.fromkeys(_PLAIN, _NOT_BUILT)
    return sorted({**plain, **_FAMILIES, **_EXPLAINED}.items())
