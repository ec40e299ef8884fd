"""Configs altered and described through `dispatch`, with the real controller behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.protocol.versions import SERVED, ApiKey
from broker.server import ListenerConfigs
from raftctl.errors import ErrorCode
from raftctl.runtime.real import RealRuntime
from raftctl.security.tls import NodeTls
from tests.kit.certificates import Authority
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HIDDEN = "s3cret"

pytestmark = pytest.mark.req("N1", "C9")


@pytest.fixture
def broker() -> ControlledBroker:
    """With a topic `t`."""
    broker = ControlledBroker(log_retention_ms="777")
    broker.cluster.assign("t", (1, 2))
    broker.publish()
    return broker


def altering(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    changes = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in configs
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    return {"resources": [resource], "validate_only": False}


async def described(broker: ControlledBroker, kind: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    request = {
        "resources": [resource],
        "include_synonyms": True,
        "include_documentation": False,
    }
    (result,) = (await ask(broker, 32, 4, request))["results"]
    assert result["error_code"] == 0
    return {entry["name"]: entry for entry in result["configs"]}


def sources(entry: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    return [(one["name"], one["value"], one["source"]) for one in entry["synonyms"]]


@pytest.mark.parametrize("version", SERVED[ApiKey.INCREMENTAL_ALTER_CONFIGS])
async def test_incrementally(broker: ControlledBroker, version: int) -> None:
    request = altering(2, "t", ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"))
    (answer,) = (await ask(broker, 44, version, request))["responses"]
    assert (answer["error_code"], answer["resource_type"], answer["resource_name"]) == (0, 2, "t")
    entries = await described(broker, 2, "t")
    assert sources(entries["retention.ms"]) == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "777", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    assert entries["cleanup.policy"]["value"] == "delete,compact"
    (answer,) = (await ask(broker, 44, version, altering(2, "t", ("retention.ms", 0, "x"))))[
        "responses"
    ]
    assert answer["error_code"] == ErrorCode.INVALID_CONFIG
    assert answer["error_message"].startswith("Invalid value 'x' for retention.ms: it must be")


@pytest.mark.parametrize("version", SERVED[ApiKey.ALTER_CONFIGS])
async def test_as_a_whole(broker: ControlledBroker, version: int) -> None:
    for key, value in (("retention.ms", "5"), ("segment.ms", "6")):
        (answer,) = (await ask(broker, 33, version, altering(2, "t", (key, 0, value))))["responses"]
        assert answer["error_code"] == 0
    assert dict(broker.metadata.image.config(2, "t")) == {"segment.ms": "6"}


async def test_brokers_have_shared_and_own_values(broker: ControlledBroker) -> None:
    await ask(broker, 44, 1, altering(4, "", ("log.retention.ms", 0, "88")))
    assert sources((await described(broker, 2, "t"))["retention.ms"]) == [
        ("log.retention.ms", "88", 3),
        ("log.retention.ms", "777", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    await ask(broker, 44, 1, altering(4, "1", ("log.retention.ms", 0, "99")))
    (retention,) = [(await described(broker, 2, "t"))["retention.ms"]]
    assert (retention["value"], retention["config_source"]) == ("99", 2)
    own = (await described(broker, 4, "1"))["log.retention.ms"]
    assert sources(own) == [
        ("log.retention.ms", "99", 2),
        ("log.retention.ms", "88", 3),
        ("log.retention.ms", "777", 4),
    ]
    assert not own["read_only"]
    shared = await described(broker, 4, "")
    assert list(shared) == ["log.retention.ms"]
    assert (shared["log.retention.ms"]["value"], shared["log.retention.ms"]["config_source"]) == (
        "88",
        3,
    )


async def test_a_type_that_nobody_knows_is_refused_with_the_whole_request(
    broker: ControlledBroker,
) -> None:
    resources = [
        {"resource_type": kind, "resource_name": "t", "configuration_keys": None}
        for kind in (2, 99)
    ]
    request = {"resources": resources, "include_synonyms": True, "include_documentation": False}
    results = (await ask(broker, 32, 4, request))["results"]
    assert [one["error_code"] for one in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert {one["error_message"] for one in results} == {
        "Unexpected resource type UNKNOWN for resource t"
    }


async def test_no_key_is_every_key(broker: ControlledBroker) -> None:
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": []}
    request = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (result,) = (await ask(broker, 32, 4, request))["results"]
    assert len(result["configs"]) == len(await described(broker, 2, "t"))


async def test_throttle_rates_are_only_dynamic(broker: ControlledBroker) -> None:
    rate = "leader.replication.throttled.rate"
    unset = (await described(broker, 4, "1"))[rate]
    assert (unset["value"], unset["config_source"]) == (str(2**63 - 1), 5)
    await ask(broker, 44, 1, altering(4, "1", (rate, 0, "1000")))
    told = (await described(broker, 4, "1"))[rate]
    assert (told["value"], told["config_source"], told["read_only"]) == ("1000", 2, False)


async def test_groups(broker: ControlledBroker) -> None:
    await ask(broker, 44, 1, altering(32, "g", ("consumer.session.timeout.ms", 0, "50000")))
    entries = await described(broker, 32, "g")
    assert sources(entries["consumer.session.timeout.ms"]) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("consumer.session.timeout.ms", "45000", 5),
    ]
    assert entries["consumer.heartbeat.interval.ms"]["config_source"] == 5


async def listed(broker: ControlledBroker, version: int, *kinds: int) -> Any:
    return await ask(broker, 74, version, {"resource_types": kinds})


async def test_what_has_configs_is_listed(broker: ControlledBroker) -> None:
    await ask(broker, 44, 1, altering(32, "g", ("consumer.session.timeout.ms", 0, "50000")))
    await ask(broker, 44, 1, altering(4, "", ("log.retention.ms", 0, "88")))
    answer = await listed(broker, 1)
    told = [(one["resource_type"], one["resource_name"]) for one in answer["config_resources"]]
    brokers = [(kind, str(number)) for kind in (4, 8) for number in (1, 2, 3)]
    assert told == [(2, "t"), *brokers, (32, "g")]
    answer = await listed(broker, 1, 32, 16, 32)
    (group,) = answer["config_resources"]
    assert (group["resource_type"], group["resource_name"]) == (32, "g")
    assert (await listed(broker, 0)) == {"error_code": 0, "config_resources": []} | {
        key: value for key, value in answer.items() if key.startswith("throttle")
    }


async def test_listing_an_unknown_type_is_refused_as_a_whole(broker: ControlledBroker) -> None:
    answer = await listed(broker, 1, 2, 7)
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert answer["config_resources"] == []


async def test_keys_of_the_file_cannot_change(broker: ControlledBroker) -> None:
    (answer,) = (await ask(broker, 44, 1, altering(4, "1", ("node.id", 0, "7"))))["responses"]
    assert answer["error_code"] == ErrorCode.INVALID_REQUEST
    assert answer["error_message"].startswith("node.id cannot change while brokers run")


@pytest.mark.parametrize("key", [33, 44])
async def test_what_cannot_be_meant_is_refused_for_its_resource_alone(
    broker: ControlledBroker, key: int
) -> None:
    requests = [
        altering(2, "t", ("retention.ms", 0, None)),
        altering(2, "a/b", ("retention.ms", 0, "5")),
        altering(2, "t", ("retention.ms", 0, "5")),
        altering(2, "absent", ("retention.ms", 0, "5")),
    ]
    resources = [one for request in requests for one in request["resources"]]
    asked = {"resources": resources[:2] + resources[3:], "validate_only": False}
    answers = (await ask(broker, key, 1, asked))["responses"]
    assert [one["error_code"] for one in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert "retention.ms" in answers[0]["error_message"]
    (answer,) = (await ask(broker, key, 1, requests[2]))["responses"]
    assert answer["error_code"] == 0


async def test_a_brokers_numbers_have_the_type_that_their_bounds_fit_in(
    broker: ControlledBroker,
) -> None:
    entries = await described(broker, 4, "1")
    kinds = {"num.partitions": 3, "log.segment.bytes": 3, "node.id": 3, "log.retention.bytes": 5}
    assert {name: entries[name]["config_type"] for name in kinds} == kinds
    # Nothing is configured, so it is what the broker has registered with.
    assert entries["advertised.listeners"]["value"].startswith("PLAINTEXT://")


async def test_there_are_no_configs_of_all_topics_or_groups(broker: ControlledBroker) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    for key in (33, 44):
        request = altering(2, "", ("retention.ms", 0, "5"))
        (answer,) = (await ask(broker, key, 1, request))["responses"]
        assert answer["error_code"] == invalid
    resource = {"resource_type": 32, "resource_name": "", "configuration_keys": None}
    options = {"include_synonyms": False, "include_documentation": False}
    (result,) = (await ask(broker, 32, 4, {"resources": [resource], **options}))["results"]
    assert result["error_code"] == invalid


async def test_configs_of_a_name_that_no_topic_can_have(broker: ControlledBroker) -> None:
    resources = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": None}
        for name in ("a/b", "absent", "t")
    ]
    request = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    results = (await ask(broker, 32, 4, request))["results"]
    assert [one["error_code"] for one in results] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert results[2]["error_message"] == ""


@pytest.mark.req("S8")
async def test_no_description_holds_a_secret() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker = ControlledBroker(
        listeners="WEB://127.0.0.1:0,LOGIN://127.0.0.1:0",
        listener_security_protocol_map="WEB:SSL,LOGIN:SASL_SSL,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="WEB",
        ssl_keystore_location="/etc/keys.p12",
        ssl_keystore_password=HIDDEN,
        listener_name_login_ssl_keystore_password=HIDDEN,
        listener_name_login_ssl_keystore_location="/etc/login.p12",
        listener_name_login_sasl_enabled_mechanisms="PLAIN",
        listener_name_login_plain_sasl_jaas_config=f'{module} required user_a="{HIDDEN}";',
    )
    entries = await described(broker, 4, "1")
    assert HIDDEN not in repr(entries)
    hidden = (
        "ssl.keystore.password",
        "ssl.keystore.key",
        "listener.name.login.ssl.keystore.password",
        "listener.name.login.plain.sasl.jaas.config",
    )
    for name in hidden:
        assert entries[name]["is_sensitive"]
        assert entries[name]["value"] is None
    shown = entries["listener.name.login.ssl.keystore.location"]
    assert (shown["value"], shown["is_sensitive"]) == ("/etc/login.p12", False)
    assert entries["ssl.keystore.location"]["value"] == "/etc/keys.p12"


# --- listeners (KIP-226) --------------------------------------------------------------------------

PREFIX = "listener.name.plaintext."
LOCATION = f"{PREFIX}ssl.keystore.location"
PASSWORD = f"{PREFIX}ssl.keystore.password"
MAX = f"{PREFIX}max.connections"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[ControlledBroker]:
    """With a listener of TLS, whose store has a password."""
    issued = Authority().issue()
    for name in ("old", "newer"):
        issued.pkcs12(tmp_path / f"{name}.p12", HIDDEN)
    keys: dict[str, Any] = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        f"{PREFIX}ssl.keystore.type": "PKCS12",
        LOCATION: str(tmp_path / "old.p12"),
        PASSWORD: HIDDEN,
        f"{PREFIX}ssl.client.auth": "none",
    }
    broker, runtime = ControlledBroker(**keys), RealRuntime()
    tls = NodeTls(runtime, broker.log)
    configs = ListenerConfigs(broker.config, tls, lambda _: None, broker.log)
    broker.metadata.listener_configs = configs
    broker.context = replace(broker.context, listener_configs=configs)
    yield broker
    tls.close()
    runtime.close()


async def outcome(broker: ControlledBroker, name: str, key: str, value: str) -> tuple[int, str]:
    """(error code, message) of setting a config of a broker, or of all."""
    answer = await ask(broker, 44, 1, altering(4, name, (key, 0, value)))
    (found,) = answer["responses"]
    return found["error_code"], found["error_message"] or ""


@pytest.mark.req("S2")
async def test_a_store_of_a_listener_changes(secured: ControlledBroker, tmp_path: Path) -> None:
    newer = str(tmp_path / "newer.p12")
    assert await outcome(secured, "1", LOCATION, newer) == (0, "")
    assert await outcome(secured, "1", PASSWORD, HIDDEN) == (0, "")
    entries = await described(secured, 4, "1")
    assert sources(entries[LOCATION]) == [
        (LOCATION, newer, 2),
        (LOCATION, str(tmp_path / "old.p12"), 4),
    ]
    assert sources(entries[PASSWORD]) == [(PASSWORD, None, 2), (PASSWORD, None, 4)]
    assert (entries[PASSWORD]["is_sensitive"], entries[PASSWORD]["config_type"]) == (True, 9)
    assert not entries[LOCATION]["read_only"]
    assert entries[f"{PREFIX}ssl.client.auth"]["read_only"]
    code, text = await outcome(secured, "1", PASSWORD, "another")
    assert code == ErrorCode.INVALID_REQUEST
    assert "another" not in text
    assert HIDDEN not in str(secured.logged.entries)


@pytest.mark.req("S5")
async def test_limits_of_a_listener_may_be_those_of_all_brokers(secured: ControlledBroker) -> None:
    assert await outcome(secured, "", MAX, "5") == (0, "")
    entries = await described(secured, 4, "")
    assert (entries[MAX]["value"], entries[MAX]["config_source"]) == ("5", 3)
    assert sources((await described(secured, 4, "1"))[MAX]) == [(MAX, "5", 3)]
    assert await outcome(secured, "", "max.connections", "7") == (0, "")
    assert (await described(secured, 4, "1"))["max.connections"]["value"] == "7"


@pytest.mark.req("S2", "S8")
@pytest.mark.parametrize(
    ("name", "key", "value", "text"),
    [
        ("", LOCATION, "/x", "at default cluster level, broker id must be specified"),
        ("1", "ssl.keystore.location", "/x", "only per-listener using the listener prefix"),
        ("1", LOCATION, "/nowhere.p12", "/nowhere.p12"),
        ("2", MAX, "5", "Unexpected broker id, expected 1, but received 2"),
        ("1", "listeners", "PLAINTEXT://:1", "Raft-based metadata quorum"),
        ("1", "advertised.listeners", "PLAINTEXT://h:1", "cannot change while brokers run"),
        ("1", f"{PREFIX}ssl.client.auth", "required", "for existing listener PLAINTEXT"),
        ("1", f"{PREFIX}plain.sasl.jaas.config", "x", "for existing listener PLAINTEXT"),
        ("1", "listener.name.other.max.connections", "5", "there is no such listener"),
        ("1", MAX, "-1", "max.connections"),
        ("1", "max.connections.per.ip.overrides", "here", "HOST:COUNT"),
        ("1", "principal.builder.class", "x", "cannot change while brokers run"),
    ],
)
async def test_what_of_listeners_cannot_change(
    secured: ControlledBroker, name: str, key: str, value: str, text: str
) -> None:
    code, told = await outcome(secured, name, key, value)
    assert (code, text in told) == (ErrorCode.INVALID_REQUEST, True), told
