"""Configs, access rules, quotas, credentials, features, log directories, quorum, cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.protocol.versions import ApiKey
from tests.peers.differential.language import Ask, Body, Script, Step, prepare, since, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIBE = ApiKey.DESCRIBE_CONFIGS
ALTER = ApiKey.ALTER_CONFIGS
CHANGE = ApiKey.INCREMENTAL_ALTER_CONFIGS
RESOURCES = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield from _configs_told()
    yield from _configs_changed()
    yield from _configs_altered()
    yield from _client_metrics()
    yield from _loggers()
    yield from _acls()
    yield from _quotas()
    yield from _scram()
    yield from _tokens()
    yield from _features()
    yield from _log_dirs()
    yield from _cluster()


def described(kind: int = TOPIC, name: str = "$t", keys: Any = None, **more: Any) -> Body:
    """The body of a DescribeConfigs of one resource."""
    one = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return {"resources": [one], **more}


def _configs_told() -> Iterator[Script]:
    some = ["retention.ms", "cleanup.policy", "no.such.thing", "segment.bytes"]
    here = {"resource_type": TOPIC, "resource_name": "$t", "configuration_keys": ["retention.ms"]}
    cases: dict[str, Body] = {
        "topic": described(),
        "topic, synonyms": described(include_synonyms=True),
        "topic, some": described(keys=some),
        "topic, some, synonyms": described(keys=some, include_synonyms=True),
        "topic, documented": described(keys=["retention.ms"], include_documentation=True),
        "topic, no keys": described(keys=[]),
        "topic twice": {"resources": [here, here]},
        "unknown topic": described(name="$unknown"),
        "invalid topic": described(name="a b"),
        "empty topic": described(name=""),
        "metadata": described(name="__cluster_metadata"),
        "internal topic": described(name="__consumer_offsets"),
        "broker, some": described(BROKER, "1", ["log.retention.ms", "node.id", "num.partitions"]),
        "broker default": described(BROKER, "", ["log.retention.ms"]),
        "broker, synonyms": described(BROKER, "1", ["log.segment.bytes"], include_synonyms=True),
        "unknown broker": described(BROKER, "9"),
        "broker of words": described(BROKER, "one"),
        "group": described(GROUP, "$g"),
        "group, synonyms": described(GROUP, "$g", include_synonyms=True),
        "empty group": described(GROUP, ""),
        "logger": described(LOGGER, "1", ["kafka.nothing"]),
        "unknown logger": described(LOGGER, "9"),
        "metrics": described(METRICS, "$m"),
        "kind 0": described(0, "x"),
        "kind 3": described(3, "x"),
        "kind 99": described(99, "x"),
        "none": {"resources": []},
    }
    made = {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    asks = [Ask(name, DESCRIBE, body) for name, body in cases.items()]
    yield Script("configs told", [*topic("$t", configs=made), *asks])
    lists: dict[str, Body] = {
        "all": {},
        "topics": {"resource_types": [TOPIC]},
        "brokers": {"resource_types": [BROKER]},
        "groups": {"resource_types": [GROUP]},
        "metrics": {"resource_types": [METRICS]},
        "loggers": {"resource_types": [LOGGER]},
        "unknown": {"resource_types": [99]},
        "kind 0": {"resource_types": [0]},
    }
    told = [Ask(name, RESOURCES, body, mine=True) for name, body in lists.items()]
    yield Script("config resources", [*topic("$t"), *told])


def changed(
    *configs: tuple[str, int, str | None], kind: int = TOPIC, name: str = "$t", **more: Any
) -> Body:
    """The body of an IncrementalAlterConfigs of one resource."""
    pairs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in configs
    ]
    one = {"resource_type": kind, "resource_name": name, "configs": pairs}
    return {"resources": [one], **more}


def _configs_changed() -> Iterator[Script]:
    keep = ("retention.ms", SET, "1000")
    cases: dict[str, Body] = {
        "set": changed(keep),
        "set again": changed(("retention.ms", SET, "2000")),
        "only checked": changed(("retention.ms", SET, "3000"), validate_only=True),
        "wrong": changed(("retention.ms", SET, "soon")),
        "too small": changed(("retention.ms", SET, "-2")),
        "unknown": changed(("no.such.thing", SET, "1")),
        "null": changed(("retention.ms", SET, None)),
        "empty": changed(("retention.ms", SET, "")),
        "delete": changed(("retention.ms", DELETE, None)),
        "delete again": changed(("retention.ms", DELETE, None)),
        "delete with a value": changed(("segment.ms", DELETE, "7")),
        "delete unknown": changed(("no.such.thing", DELETE, None)),
        "append": changed(("cleanup.policy", APPEND, "compact")),
        "append again": changed(("cleanup.policy", APPEND, "compact")),
        "append two": changed(("cleanup.policy", APPEND, "delete,compact")),
        "subtract": changed(("cleanup.policy", SUBTRACT, "delete")),
        "subtract what is not there": changed(("cleanup.policy", SUBTRACT, "delete")),
        "subtract all": changed(("cleanup.policy", SUBTRACT, "compact")),
        "append to a number": changed(("retention.ms", APPEND, "1")),
        "append null": changed(("cleanup.policy", APPEND, None)),
        "operation 4": changed(("retention.ms", 4, "1")),
        "twice": changed(keep, keep),
        "none": changed(),
        "unknown topic": changed(keep, name="$unknown"),
        "invalid topic": changed(keep, name="a b"),
        "empty topic": changed(keep, name=""),
        "unknown broker": changed(("log.cleaner.threads", SET, "1"), kind=BROKER, name="9"),
        "broker of words": changed(("log.cleaner.threads", SET, "1"), kind=BROKER, name="one"),
        "broker, read only": changed(("node.id", SET, "2"), kind=BROKER, name="1"),
        "broker, checked": changed(
            ("log.retention.ms", SET, "5"), kind=BROKER, name="1", validate_only=True
        ),
        "broker, wrong": changed(("log.retention.ms", SET, "soon"), kind=BROKER, name="1"),
        "group": changed(("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="$g"),
        "group, unknown": changed(("no.such.thing", SET, "1"), kind=GROUP, name="$g"),
        "group, too small": changed(
            ("consumer.session.timeout.ms", SET, "1"), kind=GROUP, name="$g"
        ),
        "empty group": changed(("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name=""),
        "metrics": changed(("match", SET, "client_id=nobody"), kind=METRICS, name="$m"),
        "logger": changed(("kafka.nothing", SET, "INFO"), kind=LOGGER, name="1"),
        "kind 0": changed(keep, kind=0),
        "kind 99": changed(keep, kind=99),
    }
    one = cases["set"]["resources"][0]
    cases["a resource twice"] = {"resources": [one, one]}
    cases["no resources"] = {"resources": []}
    keys = ["retention.ms", "cleanup.policy", "segment.ms"]
    for version in (0, 1):
        asks = [Ask(name, CHANGE, body, [version]) for name, body in cases.items()]
        after = [
            Ask("topic after", DESCRIBE, described(keys=keys), [4]),
            Ask("group after", DESCRIBE, described(GROUP, "$g"), [4]),
        ]
        yield Script(f"configs changed v{version}", [*topic("$t"), *asks, *after])


def _client_metrics() -> Iterator[Script]:
    def set_to(key: str, value: str, operation: int = SET) -> Body:
        return changed((key, operation, value), kind=METRICS, name="$m")

    cases: dict[str, Body] = {
        # It matches nobody, so that scripts beside this one are asked for nothing.
        "match": set_to("match", "client_id=nobody.*,client_source_port=1"),
        "metrics": set_to("metrics", "org.apache.kafka.producer."),
        "more metrics": set_to("metrics", "b", APPEND),
        "fewer metrics": set_to("metrics", "b", SUBTRACT),
        "interval": set_to("interval.ms", "1000"),
        "interval too short": set_to("interval.ms", "99"),
        "interval too long": set_to("interval.ms", "3600001"),
        "interval of words": set_to("interval.ms", "soon"),
        "match of one word": set_to("match", "client_id"),
        "match of nothing": set_to("match", "client_id="),
        "match twice": set_to("match", "client_id=a=b"),
        "match of a broken pattern": set_to("match", "client_id=("),
        "match of an unknown attribute": set_to("match", "principal=a"),
        "unknown": set_to("no.such.thing", "1"),
        "empty name": changed(("metrics", SET, "a"), kind=METRICS, name=""),
    }
    told = [
        Ask("told", DESCRIBE, described(METRICS, "$m", include_synonyms=True)),
        Ask("some told", DESCRIBE, described(METRICS, "$m", ["interval.ms"])),
        Ask("none told", DESCRIBE, described(METRICS, "$n")),
        Ask("empty name told", DESCRIBE, described(METRICS, "")),
        Ask("listed", RESOURCES, {"resource_types": [METRICS]}, mine=True),
    ]
    asks = [Ask(name, CHANGE, body, [1]) for name, body in cases.items()]
    gone = changed(
        ("interval.ms", DELETE, None),
        ("match", DELETE, None),
        ("metrics", DELETE, None),
        kind=METRICS,
        name="$m",
    )
    ended = [Ask("gone", CHANGE, gone, [1]), Ask("listed no more", RESOURCES, {}, mine=True)]
    yield Script("client metrics", [*asks, *told, *ended])
    yield Script("telemetry", list(_telemetry()))


def _telemetry() -> Iterator[Step]:
    """What clients without subscriptions are answered; their ids are in no other script.

    A change of any subscription, by scripts beside this one, makes both systems forget when a
    client pushed. So no answer here may depend on that: each client pushes once before its last.
    """
    first, second = (UUID(f"5a3c8f1e-0000-4000-8000-00000000007{one}") for one in "ab")
    push: Body = {
        "client_instance_id": first,
        "subscription_id": 1,
        "terminating": False,
        "compression_type": 0,
        "metrics": b"",
    }
    ask, pushes = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY
    yield Ask("pushes first", pushes, push)
    yield Ask("asks after it", ask, {"client_instance_id": first})
    yield Ask("asks first", ask, {"client_instance_id": second})
    push = {**push, "client_instance_id": second}
    yield Ask("pushes to another subscription", pushes, push)
    yield Ask("pushes of nobody", pushes, {**push, "client_instance_id": None})
    yield Ask("pushes of a reserved id", pushes, {**push, "client_instance_id": UUID(int=1)})
    yield Ask("ends", pushes, {**push, "terminating": True})


def _loggers() -> Iterator[Script]:
    def of_root(*change: tuple[int, str | None], name: str = "1") -> Body:
        configs = [("root", operation, value) for operation, value in change]
        return changed(*configs, kind=LOGGER, name=name)

    cases: dict[str, Body] = {
        "checked": {**of_root((SET, "INFO")), "validate_only": True},
        "unknown level": of_root((SET, "LOUD")),
        "lower case": of_root((SET, "info")),
        "unset root": of_root((DELETE, None)),
        "append": of_root((APPEND, "INFO")),
        "operation 9": of_root((9, "INFO")),
        "null": of_root((SET, None)),
        "twice": of_root((SET, "INFO"), (SET, "WARN")),
        "another broker": of_root((SET, "INFO"), name="9"),
        "broker of words": of_root((SET, "INFO"), name="one"),
        "no broker": of_root((SET, "INFO"), name=""),
        "unknown logger": changed(("no.such", DELETE, None), kind=LOGGER, name="1"),
    }
    asks = [Ask(name, CHANGE, body, [1]) for name, body in cases.items()]
    told = Ask("root", DESCRIBE, described(LOGGER, "1", ["root"], include_synonyms=True))
    nobody = Ask("no broker told", DESCRIBE, described(LOGGER, ""))
    yield Script("loggers", [*asks, told, nobody])


def _configs_altered() -> Iterator[Script]:
    def altered(kind: int = TOPIC, name: str = "$t", **configs: str | None) -> Body:
        pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        one = {"resource_type": kind, "resource_name": name, "configs": pairs}
        return {"resources": [one]}

    pair = {"name": "retention.ms", "value": "1"}
    doubled = {"resource_type": TOPIC, "resource_name": "$t", "configs": [pair, pair]}
    cases: dict[str, Body] = {
        "set": altered(retention_ms="1000", segment_ms="60000"),
        "replaces": altered(retention_ms="2000"),
        "only checked": {**altered(retention_ms="9"), "validate_only": True},
        "wrong": altered(retention_ms="soon"),
        "unknown": altered(no_such_thing="1"),
        "null": altered(retention_ms=None),
        "empty": altered(retention_ms=""),
        "twice": {"resources": [doubled]},
        "none": altered(),
        "unknown topic": altered(name="$unknown", retention_ms="1"),
        "invalid topic": altered(name="a b", retention_ms="1"),
        "unknown broker": altered(BROKER, "9", log_retention_ms="1"),
        "group": altered(GROUP, "$g", consumer_session_timeout_ms="50000"),
        "logger": altered(LOGGER, "1", kafka_nothing="INFO"),
        "kind 0": altered(0, "x", retention_ms="1"),
        "no resources": {"resources": []},
    }
    for version in (0, 1, 2):
        asks: list[Step] = [Ask(name, ALTER, body, [version]) for name, body in cases.items()]
        keys = ["retention.ms", "segment.ms"]
        asks.insert(2, Ask("after it", DESCRIBE, described(keys=keys), [4]))
        asks.append(Ask("at last", DESCRIBE, described(keys=keys), [4]))
        yield Script(f"configs altered v{version}", [*topic("$t"), *asks])


def _acls() -> Iterator[Script]:
    def rule(kind: int = 2, name: str = "$t", pattern: int = 3, **more: Any) -> Body:
        return {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": "User:a",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
            **more,
        }

    def matching(kind: int = 1, name: str | None = None, **more: Any) -> Body:
        return {
            "resource_type_filter": kind,
            "resource_name_filter": name,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
            **more,
        }

    told = {
        "all": matching(),
        "topics": matching(2),
        "a topic": matching(2, "$t", pattern_type_filter=3),
        "matching": matching(2, "$t", pattern_type_filter=2),
        "kind 0": matching(0),
        "kind 99": matching(99),
    }
    asks: list[Step] = [Ask(name, ApiKey.DESCRIBE_ACLS, body) for name, body in told.items()]
    made: dict[str, list[Body]] = {
        "topic": [rule()],
        "prefix": [rule(pattern=4)],
        "group": [rule(3, "$g")],
        "cluster": [rule(4, "kafka-cluster")],
        "two": [rule(), rule(3, "$g")],
        "wrong principal": [rule(principal="a")],
        "kind 0": [rule(0)],
        "none": [],
    }
    asks += [Ask(name, ApiKey.CREATE_ACLS, {"creations": some}) for name, some in made.items()]
    gone: dict[str, list[Body]] = {
        "all": [matching(2, "$t")],
        "two": [matching(2, "$t"), matching(3, "$g")],
        "kind 0": [matching(0)],
        "none": [],
    }
    asks += [Ask(name, ApiKey.DELETE_ACLS, {"filters": some}) for name, some in gone.items()]
    named = []
    for step in asks:
        assert isinstance(step, Ask)
        label = f"{step.api.name.partition('_')[0].lower()} {step.name}"
        named.append(Ask(label, step.api, step.body))
    yield Script("acls", named)


def _quotas() -> Iterator[Script]:
    describe, alter = ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS

    def entity(*parts: tuple[str, str | None]) -> list[Body]:
        return [{"entity_type": kind, "entity_name": name} for kind, name in parts]

    def op(key: str = "consumer_byte_rate", value: float = 1e9, remove: bool = False) -> Body:
        return {"key": key, "value": value, "remove": remove}

    def altered(parts: list[Body], *ops: Body, **more: Any) -> Body:
        return {"entries": [{"entity": parts, "ops": ops}], **more}

    user, client = entity(("user", "$u")), entity(("client-id", "$c"))
    cases: dict[str, Body] = {
        "user": altered(user, op()),
        "client": altered(client, op("producer_byte_rate", 1e9)),
        "both": altered(user + client, op("request_percentage", 200)),
        "only checked": altered(user, op(value=5e9), validate_only=True),
        "unknown key": altered(user, op("no_such_rate")),
        "zero": altered(user, op(value=0)),
        "negative": altered(user, op(value=-1)),
        "fraction": altered(user, op(value=1e9 + 0.5)),
        "removes": altered(user, op(remove=True)),
        "removes again": altered(user, op(remove=True)),
        "twice": altered(user, op(), op(value=2e9)),
        "no operations": altered(user),
        "no entity": altered([], op()),
        "unknown type": altered(entity(("nothing", "x")), op()),
        "type twice": altered(user + user, op()),
        "empty user": altered(entity(("user", "")), op()),
        "ip": altered(entity(("ip", "127.0.0.9")), op("connection_creation_rate", 1e9)),
        "ip, other key": altered(entity(("ip", "127.0.0.9")), op()),
        "ip and user": altered(entity(("ip", "127.0.0.9")) + user, op()),
        "ip by name": altered(entity(("ip", "localhost")), op("connection_creation_rate", 1e9)),
        "ip unknown": altered(
            entity(("ip", "no.such.host.invalid")), op("connection_creation_rate", 1e9)
        ),
        "connections of a user": altered(user, op("connection_creation_rate", 10)),
        "mutations": altered(user, op("controller_mutation_rate", 1e6)),
        "none": {"entries": []},
    }

    def component(kind: str, match: int, name: str | None) -> Body:
        return {"entity_type": kind, "match_type": match, "match": name}

    def asked(*components: Body, strict: bool = False) -> Body:
        return {"components": components, "strict": strict}

    told = {
        "user": asked(component("user", 0, "$u")),
        "user, strict": asked(component("user", 0, "$u"), strict=True),
        "any client": asked(component("user", 0, "$u"), component("client-id", 2, None)),
        "both": asked(component("user", 0, "$u"), component("client-id", 0, "$c")),
        "client": asked(component("client-id", 0, "$c")),
        "ip": asked(component("ip", 0, "127.0.0.9")),
        "unknown user": asked(component("user", 0, "$unknown")),
        "match 3": asked(component("user", 3, "$u")),
        "no name": asked(component("user", 0, None)),
        "default with a name": asked(component("user", 1, "$u")),
        "unknown type": asked(component("nothing", 0, "x")),
        "type twice": asked(component("user", 0, "$u"), component("user", 0, "$u")),
        "ip and user": asked(component("ip", 2, None), component("user", 2, None)),
    }
    for version in (0, 1):
        asks = [Ask(name, alter, body, [version]) for name, body in cases.items()]
        after = [Ask(f"told {name}", describe, body, [version]) for name, body in told.items()]
        yield Script(f"quotas v{version}", [*asks, *after])


def _scram() -> Iterator[Script]:
    describe, alter = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    def up(mechanism: int = 1, iterations: int = 4096, name: str = "$u") -> Body:
        return {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"salt",
            "salted_password": b"p" * (64 if mechanism == 2 else 32),
        }

    def down(mechanism: int = 1, name: str = "$u") -> Body:
        return {"name": name, "mechanism": mechanism}

    def users(*names: str) -> Body:
        return {"users": [{"name": one} for one in names]}

    yield Script(
        "scram",
        [
            Ask("unknown", describe, users("$u")),
            Ask("delete unknown", alter, {"deletions": [down()]}),
            Ask("set", alter, {"upsertions": [up()]}),
            Ask("set again", alter, {"upsertions": [up(1, 8192)]}),
            Ask("set 512", alter, {"upsertions": [up(2)]}),
            Ask("too few iterations", alter, {"upsertions": [up(1, 4095)]}),
            Ask("too many iterations", alter, {"upsertions": [up(1, 16_385)]}),
            Ask("most iterations", alter, {"upsertions": [up(1, 16_384)]}),
            Ask("short password", alter, {"upsertions": [{**up(2), "salted_password": b"p"}]}),
            Ask("mechanism 0", alter, {"upsertions": [up(0)]}),
            Ask("mechanism 9", alter, {"upsertions": [up(9)]}),
            Ask("empty name", alter, {"upsertions": [up(name="")]}),
            Ask("twice", alter, {"upsertions": [up(), up()]}),
            Ask("both ways", alter, {"upsertions": [up()], "deletions": [down()]}),
            Ask("told", describe, users("$u")),
            Ask("told twice", describe, users("$u", "$u")),
            Ask("told two", describe, users("$u", "$unknown")),
            Ask("told empty", describe, users("")),
            Ask("told all", describe, {"users": None}, mine=True),
            Ask("told none", describe, {"users": []}, mine=True),
            Ask("delete", alter, {"deletions": [down()]}),
            Ask("delete other mechanism", alter, {"deletions": [down(0)]}),
            Ask("delete empty name", alter, {"deletions": [down(name="")]}),
            Ask("told after", describe, users("$u")),
            Ask("nothing", alter),
        ],
    )


def _tokens() -> Iterator[Script]:
    """Nobody has authenticated, so there are none; the listener decides that, not the request."""
    renewers = [{"principal_type": "User", "principal_name": "$u"}]
    owner = {"owner_principal_type": "User", "owner_principal_name": "$u"}
    owners = [{"principal_type": "User", "principal_name": "$u"}]
    of_groups = [{"principal_type": "Group", "principal_name": "$u"}]
    create, describe = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
    yield Script(
        "tokens",
        [
            Ask("create", create, {"renewers": renewers, "max_lifetime_ms": -1}),
            Ask("create for another", create, {**owner, "renewers": []}, since(create, 3)),
            Ask("renewer of another type", create, {"renewers": of_groups}),
            Ask("renew", ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": b"x", "renew_period_ms": 1}),
            Ask("expire", ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": b"x"}),
            Ask("describe", describe, {"owners": None}),
            Ask("describe some", describe, {"owners": owners}),
            Ask("describe none", describe, {"owners": []}),
        ],
    )


def _features() -> Iterator[Script]:
    def updated(name: str, level: int, kind: int = 1, **more: Any) -> Body:
        one = {"feature": name, "max_version_level": level, "upgrade_type": kind}
        return {
            "feature_updates": [{**one, "allow_downgrade": kind > 1}],
            "timeout_ms": 10_000,
            **more,
        }

    cases = {
        "unknown": updated("no.such.feature", 1),
        "empty name": updated("", 1),
        "too high": updated("transaction.version", 99),
        "negative": updated("transaction.version", -1),
        "same": updated("transaction.version", 2),
        "down without leave": updated("transaction.version", 1),
        "zero without leave": updated("transaction.version", 0),
        "kind 0": updated("transaction.version", 2, 0),
        "kind 9": updated("transaction.version", 2, 9),
        "metadata too high": updated("metadata.version", 9999),
        "metadata zero": updated("metadata.version", 0, 3),
        "none": {"feature_updates": [], "timeout_ms": 1000},
    }
    asks = [Ask(name, ApiKey.UPDATE_FEATURES, body) for name, body in cases.items()]
    one = updated("transaction.version", 2)["feature_updates"][0]
    twice: Body = {"feature_updates": [one, one], "timeout_ms": 1000}
    checked = updated("transaction.version", 1, 2, validate_only=True)
    asks += [
        Ask("twice", ApiKey.UPDATE_FEATURES, twice),
        Ask("down, only checked", ApiKey.UPDATE_FEATURES, checked, [1, 2]),
    ]
    yield Script("features", asks)


def _log_dirs() -> Iterator[Script]:
    def asked(*partitions: int, name: str = "$t") -> Body:
        return {"topics": [{"topic": name, "partitions": partitions}]}

    cases = {
        "one": asked(0),
        "two": asked(0, 1),
        "unknown partition": asked(9),
        "unknown topic": asked(0, name="$unknown"),
        "no partitions": asked(),
        "none": {"topics": []},
    }
    asks = [Ask(name, ApiKey.DESCRIBE_LOG_DIRS, body) for name, body in cases.items()]
    whole = Ask("all", ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, mine=True)
    told = prepare(
        ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": []}, **{"$dir": ("results", 0, "log_dir")}
    )

    def moved(path: str, partition: int = 0, name: str = "$t") -> Body:
        topics = [{"name": name, "partitions": [partition]}]
        return {"dirs": [{"path": path, "topics": topics}]}

    moves = {
        "where it is": moved("$dir"),
        "unknown directory": moved("/no/such/directory"),
        "no path": moved(""),
        "unknown partition": moved("$dir", 9),
        "unknown topic": moved("$dir", name="$unknown"),
        "invalid topic": moved("$dir", name="a b"),
        "none": {"dirs": []},
    }
    more = [
        Ask(f"move {name}", ApiKey.ALTER_REPLICA_LOG_DIRS, body) for name, body in moves.items()
    ]
    yield Script("log dirs", [*topic("$t", 2), *asks, whole, told, *more])


def _cluster() -> Iterator[Script]:
    cluster = {
        "brokers": {"endpoint_type": 1},
        "operations": {"endpoint_type": 1, "include_cluster_authorized_operations": True},
        "controllers": {"endpoint_type": 2},
        "kind 0": {"endpoint_type": 0},
        "kind 3": {"endpoint_type": 3},
        "fenced too": {"endpoint_type": 1, "include_fenced_brokers": True},
    }
    yield Script(
        "cluster", [Ask(name, ApiKey.DESCRIBE_CLUSTER, body) for name, body in cluster.items()]
    )

    def quorum(name: str, *partitions: int) -> Body:
        parts = [{"partition_index": one} for one in partitions]
        return {"topics": [{"topic_name": name, "partitions": parts}]}

    metadata = "__cluster_metadata"
    both = {"topics": [*quorum(metadata, 0)["topics"], *quorum("$t", 0)["topics"]]}
    asks = {
        "one": quorum(metadata, 0),
        "unknown partition": quorum(metadata, 1),
        "two partitions": quorum(metadata, 0, 1),
        "no partitions": quorum(metadata),
        "another topic": quorum("$t", 0),
        "two topics": both,
        "none": {"topics": []},
    }
    yield Script("quorum", [Ask(name, ApiKey.DESCRIBE_QUORUM, body) for name, body in asks.items()])
    brokers = {"unknown": 99, "negative": -1}
    steps = [
        Ask(name, ApiKey.UNREGISTER_BROKER, {"broker_id": number})
        for name, number in brokers.items()
    ]
    yield Script("unregister", steps)
