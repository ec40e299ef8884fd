"""Keys, bounds, cross checks and the wording of complaints."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

import raftctl
from raftctl.config import KEYS, SECTIONS, NodeConfig, key_of, load_config, make_config
from raftctl.config._unused import unused_keys, why_unused
from raftctl.config.addresses import Listener, Voter, parse_listeners, parse_voters
from raftctl.errors import ConfigError, KafkaError
from raftctl.metadata.configs.dynamic import BROKER_KEYS, GROUP_KEYS
from raftctl.metadata.configs.listeners import BROKER_LIMIT_KEYS
from raftctl.metadata.configs.topic import TOPIC_KEYS, TopicConfig, validate_topic_config

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "log.dirs": "/data/a, /data/b",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/data/a",
}


def test_attributes_are_keys_with_dots_as_underscores() -> None:
    config = make_config({**COMBINED, "replica.lag.time.max.ms": "1500"})
    assert config.replica_lag_time_max_ms == 1500
    assert config.node_id == 1
    assert config.is_controller
    assert config.is_broker
    assert config.controller_quorum_voters == (Voter(1, "localhost", 9093),)


def test_kafka_defaults() -> None:
    config = make_config(COMBINED)
    assert config.broker_heartbeat_interval_ms == 2_000
    assert config.broker_session_timeout_ms == 9_000
    assert config.replica_lag_time_max_ms == 30_000
    assert config.log_segment_bytes == 1 << 30
    assert config.roll_interval_ms == config.retention_interval_ms == 7 * 24 * 3_600_000
    assert config.auto_create_topics_enable is True
    assert config.unclean_leader_election_enable is False
    assert config.fetch_max_bytes == 55 << 20
    assert config.message_max_bytes == 1_048_588
    assert config.metadata_log_max_record_bytes_between_snapshots == 20 << 20
    assert config.metadata_log_max_snapshot_interval_ms == 3_600_000


def test_every_field_is_in_exactly_one_section() -> None:
    names = [name for section in SECTIONS for name in section.model_fields]
    assert sorted(map(key_of, names)) == sorted(KEYS)
    assert not set(KEYS) & set(unused_keys())
    assert [key for key in KEYS if why_unused(key)] == []


def test_config_is_frozen() -> None:
    config = make_config(COMBINED)
    with pytest.raises(ValidationError, match="frozen"):
        config.node_id = 2


def test_derived_listeners_and_directories() -> None:
    config = make_config(COMBINED)
    assert config.controller_listeners == (Listener("CONTROLLER", "127.0.0.1", 9093),)
    assert config.broker_listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised == config.broker_listeners
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.metadata_directory == "/data/a"
    assert config.directories == ("/data/a", "/data/b")


def test_named_listeners() -> None:
    config = make_config(
        {
            **BROKER,
            "listeners": "outside://0.0.0.0:9092,INSIDE://[::1]:0",
            "advertised.listeners": "OUTSIDE://broker.example:9092,INSIDE://[::1]:9094",
            "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert config.inter_broker_listener == "INSIDE"
    assert [str(listener) for listener in config.advertised] == [
        "OUTSIDE://broker.example:9092",
        "INSIDE://[::1]:9094",
    ]


def test_retention_takes_the_finest_unit() -> None:
    minutes = {**COMBINED, "log.retention.minutes": "2"}
    assert make_config(minutes).retention_interval_ms == 120_000
    assert make_config({**minutes, "log.retention.ms": "5"}).retention_interval_ms == 5
    assert make_config({**COMBINED, "log.retention.hours": "-1"}).retention_interval_ms == -1
    assert make_config({**COMBINED, "log.roll.ms": "7"}).roll_interval_ms == 7


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num.partition": "3"}, r"num\.partition: no such key; did you mean num\.partitions\?"),
        ({"num.io.thread": "3"}, r"num\.io\.thread: no such key; did you mean num\.io\.threads\?"),
        ({"gibberish": "3"}, r"gibberish: no such key; docs/reference/configuration\.md"),
        ({"num.partitions": "0"}, r"num\.partitions=0 is out of bounds: must be at least 1"),
        ({"node.id": "9999999999"}, r"node\.id=9999999999 is out of bounds: must be at most"),
        ({"num.partitions": "many"}, r"num\.partitions=many is not a whole number"),
        ({"delete.topic.enable": "yes"}, r"delete\.topic\.enable: 'yes' is neither true nor"),
        ({"process.roles": "boss"}, r"process\.roles=boss is not known: write 'controller' or"),
        ({"process.roles": ""}, r"process\.roles is empty"),
        ({"log.dirs": " "}, r"log\.dirs is empty"),
        ({"compression.type": "zip"}, r"compression\.type=zip is not known: write 'uncompressed'"),
        ({"controller.quorum.voters": "1:localhost:9093"}, r"controller\.quorum\.voters: .*id@h"),
        ({"controller.quorum.voters": "1@localhost"}, r"controller\.quorum\.voters: .*host:port"),
        ({"controller.quorum.voters": ""}, r"controller\.quorum\.voters is empty"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, r"controller\.quorum\.voters: .*twice"),
        ({"controller.quorum.voters": "1@a:1,2@a:1"}, r"controller\.quorum\.voters: .*twice"),
        ({"node.id": "7"}, r"node\.id=7 is not in controller\.quorum\.voters: add it"),
        ({"process.roles": "broker"}, r"node\.id=1 is in controller\.quorum\.voters but"),
        ({"listeners": "PLAINTEXT://:9092"}, r"listeners has none of controller\.listener\.names"),
        ({"listeners": "CONTROLLER://:9093"}, r"listeners has none for this broker"),
        ({"process.roles": "controller"}, r"listeners has PLAINTEXT, but this node is only a con"),
        (
            {"controller.listener.names": "CONTROLLER,PLAINTEXT"},
            r"listeners has PLAINTEXT and CONTROLLER, but a controller serves one listener",
        ),
        ({"controller.listener.names": ""}, r"controller\.listener\.names is empty"),
        ({"listeners": "9092"}, r"listeners: '9092' is malformed: write NAME://host:port"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
            r"advertised\.listeners: 0\.0\.0\.0 is no address",
        ),
        ({"advertised.listeners": "OTHER://a:1"}, r"advertised\.listeners has OTHER"),
        ({"inter.broker.listener.name": "SSL"}, r"inter\.broker\.listener\.name=SSL is not among"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SSL"},
            r"listener\.security\.protocol\.map has no protocol for CONTROLLER",
        ),
        ({"listener.security.protocol.map": "x"}, r"listener\.security\.protocol\.map: 'x' is mal"),
        ({"broker.session.timeout.ms": "2000"}, r"broker\.heartbeat\.interval\.ms=2000 must be"),
        ({"replica.lag.time.max.ms": "400"}, r"replica\.fetch\.wait\.max\.ms=500 must be at most"),
        ({"replica.socket.timeout.ms": "1"}, r"replica\.fetch\.wait\.max\.ms=500 must be at most"),
        (
            {"http.listener": "HTTP://:9095"},
            r"http\.listener=HTTP://.*: a controller has HTTP",
        ),
        ({"http.listener": "127.0.0.1:9095"}, r"http\.listener.*malformed"),
    ],
)
def test_bad_input_is_one_line_that_names_the_key(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        make_config({**COMBINED, **changes})
    assert "\n" not in str(caught.value)


def test_broker_must_not_listen_as_a_controller() -> None:
    with pytest.raises(ConfigError, match="listeners has CONTROLLER"):
        make_config({**BROKER, "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"})


def test_a_brokers_listener_for_http_has_a_name_of_its_own() -> None:
    for name in ("PLAINTEXT", "CONTROLLER"):
        with pytest.raises(ConfigError, match=rf"http\.listener=.*{name} is another listener"):
            make_config({**BROKER, "http.listener": f"{name}://:9095"})
    config = make_config({**BROKER, "http.listener": "HTTP://:9095"})
    assert str(config.http_listener) == "HTTP://127.0.0.1:9095"
    assert config.security_protocol("HTTP") == "PLAINTEXT"
    assert make_config({**BROKER, "http.listener": ""}).http_listener is None
    secured = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}
    with pytest.raises(ConfigError, match="no protocol for HTTP, while other listeners"):
        make_config({**BROKER, **secured, "http.listener": "HTTP://:9095"})


@pytest.mark.req("S8")
@pytest.mark.parametrize(
    ("protocol", "changes", "complaint"),
    [
        ("SSL", {}, "the listener HTTP speaks TLS without a certificate"),
        ("SASL_PLAINTEXT", {}, "sasl.enabled.mechanisms is empty, but HTTP speaks"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, "nobody can log in by PLAIN"),
        ("PLAINTEXT", {"listener.name.http.max.connections": "5"}, "http.listener has no such"),
    ],
    ids=["certificate", "mechanisms", "users", "bound"],
)
def test_a_brokers_listener_for_http_has_what_its_protocol_needs_and_no_key_for_nothing(
    protocol: str, changes: dict[str, str], complaint: str
) -> None:
    protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HTTP:{protocol}"
    http = {"http.listener": "HTTP://:9095", "listener.security.protocol.map": protocols}
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        make_config({**BROKER, **http, **changes})


def test_missing_key() -> None:
    without = {key: value for key, value in COMBINED.items() if key != "node.id"}
    with pytest.raises(ConfigError, match=r"node\.id is missing"):
        make_config(without)


def test_several_problems_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"\(and 1 more\)"):
        make_config({**COMBINED, "num.partitions": "0", "log.roll.hours": "0"})


def test_keys_without_effect_get_one_warning_each() -> None:
    warnings: list[str] = []
    text = "\n".join(f"{key}={value}" for key, value in COMBINED.items())
    load_config(text + "\nnum.io.threads=8\nzookeeper.connect=z:2181", warn=warnings.append)
    assert len(warnings) == 2
    assert warnings[0].startswith("num.io.threads has no effect: ")
    assert "controller.quorum.voters" in warnings[1]


@pytest.mark.req("S8")
def test_a_node_does_not_start_as_if_it_were_safe() -> None:
    warnings: list[str] = []
    for key, value in (
        ("ssl.client.auth", "required"),
        ("super.users", "User:admin"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("principal.builder.class", "org.example.Builder"),
        ("sasl.jaas.config", "org.example.Module required;"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.kerberos.service.name", "kafka"),
        ("ssl.keystore.location", "/etc/keys.p12"),
        ("ssl.keystore.password", "s3cret"),
        ("ssl.engine.factory.class", "org.example.Engine"),
        ("log.preallocate", "true"),
        ("log.preallocate", " TRUE"),
        ("remote.log.storage.system.enable", "true"),
        ("transaction.two.phase.commit.enable", "true"),
        ("create.topic.policy.class.name", "org.example.Policy"),
        ("alter.config.policy.class.name", "org.example.Policy"),
        ("config.providers", "file"),
        ("listener.name.external.ssl.client.auth", "REQUIRED"),
        ("listener.name.plaintext.ssl.client.auth", "REQUIRED"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "s3cret"),
        ("listener.name.plaintext.num.partitions", "3"),
    ):
        with pytest.raises(ConfigError, match=f"{key}.*remove the key") as caught:
            make_config({**COMBINED, key: value}, warnings.append)
        assert "s3cret" not in str(caught.value)
    assert warnings == []


@pytest.mark.req("S8")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allow.everyone.if.no.acl.found", "true"),
        ("authorizer.class.name", ""),
        ("connections.max.reauth.ms", "0"),
        ("listener.name.plaintext.ssl.client.auth", "none"),
        ("listener.name.plaintext.ssl.provider", ""),
        ("log.preallocate", "false"),
        (
            "principal.builder.class",
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        ),
        ("sasl.kerberos.kinit.cmd", "/usr/bin/kinit"),
        ("ssl.client.auth", "none"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"),
        ("super.users", ""),
    ],
)
def test_a_value_that_asks_for_nothing_is_taken(key: str, value: str) -> None:
    warnings: list[str] = []
    make_config({**COMBINED, key: value}, warnings.append)
    assert warnings == []


@pytest.mark.parametrize(
    "key",
    [
        "cordoned.log.dirs",
        "cruise.control.metrics.reporter.bootstrap.servers",
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.coordinator.background.threads",
        "max.request.partition.size.limit",
        "metadata.log.segment.ms",
        "rlmm.config.remote.log.metadata.topic.num.partitions",
        "rsm.config.bucket",
        "share.fetch.purgatory.purge.interval.requests",
    ],
)
def test_a_file_of_apache_kafka_is_taken_with_a_warning_for_what_is_not_here(key: str) -> None:
    warnings: list[str] = []
    make_config({**COMBINED, key: "1"}, warnings.append)
    assert [one for one in warnings if one.startswith(f"{key} has no effect: ")] == warnings != []


def test_overrides_win() -> None:
    text = "\n".join(f"{key}={value}" for key, value in COMBINED.items())
    assert load_config(text, {"num.partitions": "9"}).num_partitions == 9


def test_values_can_be_given_by_attribute() -> None:
    config = NodeConfig(
        process_roles=("controller",),
        node_id=1,
        controller_quorum_voters=(Voter(1, "127.0.0.1", 9093),),
        listeners=(Listener("CONTROLLER", "127.0.0.1", 9093),),
        log_dirs=("/data",),
    )
    assert config.advertised == ()


def test_addresses_read_back_as_written() -> None:
    assert [str(v) for v in parse_voters("1@a:1,2@[::1]:2")] == ["1@a:1", "2@[::1]:2"]
    assert [str(v) for v in parse_listeners("a://h:1")] == ["A://h:1"]


@pytest.mark.parametrize("text", ["1@::1:9", "1@a:70000", "1@a:0", "1@:9", "-1@a:9", "1@a:9x"])
def test_malformed_voters(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_voters(text)


def _attributes_read() -> dict[str, set[str]]:
    """Name of an attribute to the files of the product that read one of that name."""
    root = Path(raftctl.__file__).parents[1]
    found: dict[str, set[str]] = {}
    for part in ("raftctl", "broker"):
        for path in (root / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.setdefault(node.attr, set()).add(path.name)
    return found


@pytest.mark.req("C12")
def test_what_is_taken_has_an_effect() -> None:
    """Every key of a node and of a topic is read somewhere, or cannot be set."""
    read = _attributes_read()
    defaults = {name for key in TOPIC_KEYS.values() for name, _ in key.broker_keys}
    unread = [
        key_of(name)
        for section in SECTIONS
        for name in section.model_fields
        if name not in read and key_of(name) not in defaults
    ]
    assert unread == []
    where = {key: read.get(key.replace(".", "_"), set()) for key in TOPIC_KEYS}
    nowhere = [key for key, files in where.items() if not files - {"topic_config.py", "keys.py"}]
    for name in nowhere:
        for value in ("true", "1", "10"):
            with pytest.raises(KafkaError, match=f"for {name}: it must be"):
                validate_topic_config({name: value}, TopicConfig())


@pytest.mark.req("C12")
def test_what_changes_while_brokers_run_is_read_by_name() -> None:
    root = Path(raftctl.__file__).parents[1]
    text = "".join(path.read_text() for path in (root / "broker").rglob("*.py"))
    defaults = {name for key in TOPIC_KEYS.values() for name, _ in key.broker_keys}
    # Keys of the limits of connections are read as those of the file are.
    known = {*defaults, *BROKER_LIMIT_KEYS}
    assert [name for name in BROKER_KEYS if name not in known and name not in text] == []
    assert [name for name in GROUP_KEYS if name not in text] == []
