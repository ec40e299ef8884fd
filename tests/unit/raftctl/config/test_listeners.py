"""What a listener asks for: its own keys before the node's, and what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftctl.config import NodeConfig, make_config
from raftctl.config.security import Jaas, ListenerLimits, parse_jaas
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENCRYPTED_LOGINS = (
    "OPEN:PLAINTEXT,WEB:SASL_SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL,CONTROLLER:PLAINTEXT"
)
MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})
SECRET = "s3cret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'{PLAIN_MODULE} required username="node" password="{SECRET}" user_node="{SECRET}";'
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/data",
    "listeners": "OPEN://:9092,WEB://:9094,LOGIN://:9095,BOTH://:9096,CONTROLLER://:9093",
    "listener.security.protocol.map": (
        "OPEN:PLAINTEXT,WEB:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "OPEN",
    "ssl.keystore.location": "/etc/node.p12",
    "ssl.keystore.type": "pkcs12",
    "ssl.keystore.password": SECRET,
    "ssl.truststore.location": "/etc/trusted.pem",
    "ssl.truststore.type": "PEM",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


def node(changes: Mapping[str, str] | None = None, *, without: str = "") -> NodeConfig:
    values = {key: value for key, value in NODE.items() if key != without}
    return make_config({**values, **(changes or {})}, pytest.fail)


@pytest.mark.req("S1")
def test_a_listener_has_the_parts_of_its_protocol() -> None:
    config = node()
    found = {name: config.listener_security(name) for name in config.named_listeners}
    assert {name: one.protocol for name, one in found.items()} == {
        "OPEN": "PLAINTEXT",
        "WEB": "SSL",
        "LOGIN": "SASL_PLAINTEXT",
        "BOTH": "SASL_SSL",
        "CONTROLLER": "PLAINTEXT",
    }
    assert [name for name, one in found.items() if one.tls] == ["WEB", "BOTH"]
    assert [name for name, one in found.items() if one.sasl] == ["LOGIN", "BOTH"]


@pytest.mark.req("S1")
def test_a_listeners_own_keys_come_before_the_nodes() -> None:
    config = node(
        {
            "listener.name.web.ssl.keystore.location": "/etc/web.jks",
            "listener.name.web.ssl.keystore.type": "JKS",
            "listener.name.web.ssl.client.auth": "required",
            "listener.name.both.sasl.enabled.mechanisms": "scram-sha-256",
            "listener.name.login.max.connections": "7",
            "listener.name.login.max.connection.creation.rate": "3",
        }
    )
    web, both = config.listener_security("WEB"), config.listener_security("BOTH")
    assert web.tls is not None
    assert both.tls is not None
    assert (web.tls.keystore.location, web.tls.keystore.type) == ("/etc/web.jks", "JKS")
    assert (both.tls.keystore.location, both.tls.keystore.type) == ("/etc/node.p12", "PKCS12")
    assert (web.tls.client_auth, both.tls.client_auth) == ("required", "none")
    assert both.sasl is not None
    assert list(both.sasl.mechanisms) == ["SCRAM-SHA-256"]
    login = config.listener_security("LOGIN").sasl
    assert login is not None
    assert list(login.mechanisms) == ["SCRAM-SHA-512"]
    assert config.listener_limits("LOGIN") == ListenerLimits(7, 3)
    assert config.listener_limits("WEB").max_connections == 2**31 - 1


@pytest.mark.req("S1")
def test_certificates_of_the_node_are_not_asked_for_where_clients_log_in() -> None:
    """As with Apache Kafka: `ssl.client.auth` of the node is one of its SSL listeners."""
    config = node({"ssl.client.auth": "required"})
    asked = {name: config.listener_security(name).tls for name in ("WEB", "BOTH")}
    assert {name: tls.client_auth for name, tls in asked.items() if tls} == {
        "WEB": "required",
        "BOTH": "none",
    }
    both = node({"listener.name.both.ssl.client.auth": "required"}).listener_security("BOTH")
    assert both.tls is not None
    assert both.tls.client_auth == "required"


@pytest.mark.req("S1")
def test_a_mechanisms_own_keys_come_before_its_listeners() -> None:
    config = node(
        {
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "listener.name.login.plain.sasl.jaas.config": USERS,
            "listener.name.login.connections.max.reauth.ms": "2000",
            "listener.name.login.oauthbearer.connections.max.reauth.ms": "1000",
            "sasl.oauthbearer.jwks.endpoint.url": "file:/etc/keys.json",
            "sasl.oauthbearer.expected.audience": "kafka, raftctl",
        }
    )
    sasl = config.listener_security("LOGIN").sasl
    assert sasl is not None
    assert sasl.login is None
    plain, bearer = sasl.mechanisms["PLAIN"], sasl.mechanisms["OAUTHBEARER"]
    assert plain.jaas is not None
    assert plain.jaas.option("user_node") == SECRET
    assert (plain.max_reauth_ms, bearer.max_reauth_ms) == (2000, 1000)
    assert bearer.oauthbearer.jwks_endpoint_url == "file:/etc/keys.json"
    assert bearer.oauthbearer.expected_audience == ("kafka", "raftctl")


@pytest.mark.req("S6")
def test_nodes_log_in_at_their_own_listeners() -> None:
    changes = {
        "inter.broker.listener.name": "LOGIN",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": USERS,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    sasl = node(changes).listener_security("LOGIN").sasl
    assert sasl is not None
    assert sasl.login is not None
    assert sasl.login.jaas is not None
    assert sasl.login.jaas.option("username") == "node"
    other = node(changes).listener_security("BOTH").sasl
    assert other is not None
    assert other.login is None


@pytest.mark.req("S8")
def test_secrets_are_in_no_text_of_a_configuration() -> None:
    config = node(
        {
            "ssl.key.password": SECRET,
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": USERS,
        }
    )
    texts = [repr(config), str(config)]
    texts += [repr(config.listener_security(name)) for name in config.named_listeners]
    assert [text for text in texts if SECRET in text] == []
    assert config.written["ssl.key.password"] == SECRET


SECRETS = (
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "sasl.jaas.config",
    "delegation.token.secret.key",
    "delegation.token.master.key",
    "sasl.oauthbearer.client.credentials.client.secret",
)
PREFIXES = ("", "listener.name.web.", "listener.name.both.", "listener.name.nowhere.")
INNER = ("", "plain.", "scram-sha-512.", "gssapi.")
OTHERS = {
    "listeners": ("OPEN://:9092,WEB://:9094,CONTROLLER://:9093", "WEB"),
    "listener.security.protocol.map": ("OPEN:PLAINTEXT", "WEB:SSL,BOTH:SSL,OPEN:SSL"),
    "ssl.keystore.type": ("PEM", "JKS", "PGP"),
    "ssl.keystore.location": ("", "/etc/other"),
    "ssl.client.auth": ("required", "maybe"),
    "sasl.enabled.mechanisms": ("PLAIN", "", "GSSAPI"),
}


@pytest.mark.req("S8")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sets(
        st.tuples(st.sampled_from(PREFIXES), st.sampled_from(INNER), st.sampled_from(SECRETS)),
        min_size=1,
        max_size=4,
    ),
    form=st.sampled_from(("{}", "M required {}", 'M required a="{}', '{} required b="{}";')),
    others=st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in OTHERS.items()}),
)
def test_no_complaint_holds_a_secret(
    keys: set[tuple[str, str, str]], form: str, others: dict[str, str]
) -> None:
    secrets = {"".join(parts): form.format(SECRET, SECRET) for parts in keys}
    values = {key: value for key, value in NODE.items() if value != SECRET}
    warnings: list[str] = []
    try:
        config = make_config({**values, **others, **secrets}, warnings.append)
    except ConfigError as error:
        warnings.append(str(error))
    else:
        warnings.append(repr(config))
    assert [text for text in warnings if SECRET in text] == []


@pytest.mark.req("S8")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param(
            {"ssl.keystore.location": ""},
            r"ssl\.keystore\.location: the listener WEB",
            id="no certificate",
        ),
        (
            {"ssl.client.auth": "required", "ssl.truststore.location": ""},
            r"ssl\.client\.auth=required: nobody's certificate is trusted by WEB",
        ),
        ({"ssl.client.auth": "perhaps"}, r"ssl\.client\.auth=perhaps is not known: write 'none'"),
        ({"ssl.enabled.protocols": "SSLv3"}, r"ssl\.enabled\.protocols=SSLv3 is not known"),
        ({"ssl.enabled.protocols": ""}, r"ssl\.enabled\.protocols is empty"),
        (
            {"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"},
            r"ssl\.protocol=TLSv1\.2 is older than",
        ),
        ({"ssl.keystore.type": "PEM"}, r"ssl\.keystore\.password: a PEM file has none"),
        (
            {"ssl.truststore.certificates": "-----BEGIN"},
            r"ssl\.truststore\.location and ssl\.truststore\.certificates are both set",
        ),
        (
            {"ssl.truststore.location": "", "ssl.truststore.certificates": "x"}
            | {"ssl.truststore.type": "JKS"},
            r"ssl\.truststore\.type=JKS, but ssl\.truststore\.certificates is PEM",
        ),
        ({"sasl.enabled.mechanisms": ""}, r"sasl\.enabled\.mechanisms is empty, but LOGIN"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, r"GSSAPI is not supported: use PLAIN"),
        pytest.param(
            {"sasl.enabled.mechanisms": "PLAIN"},
            r"listener\.name\.login\.plain.*nobody can log in",
            id="no user",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, r"jwks\.endpoint\.url is not set"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"},
            r"sasl\.oauthbearer\.jwks\.endpoint\.url: 'ftp://x' is no https:",
        ),
        (
            {"inter.broker.listener.name": "BOTH"},
            r"sasl\.mechanism\.inter\.broker\..*GSSAPI is not",
        ),
        (
            {"inter.broker.listener.name": "BOTH"}
            | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            r"nodes log in by SCRAM-SHA-256, which is not in sasl\.enabled\.mechanisms",
        ),
        (
            {"inter.broker.listener.name": "BOTH"}
            | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
            r"listener\.name\.both\.scram-sha-512\.sasl\.jaas\.config: nodes have nothing to log",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            r"security\.inter\.broker\.protocol and inter\.broker\.listener\.name are both set",
        ),
        pytest.param(
            {"listener.name.WEB.ssl.client.auth": "required"},
            r"listener\.name\.WEB\.ssl.*no such listener .*lower case",
            id="no listener",
        ),
        (
            {"listener.name.web.ssl.client.auth": "perhaps"},
            r"listener\.name\.web\.ssl\.client\.auth=perhaps is not known",
        ),
        (
            {"listener.name.login.sasl.jaas.config": USERS},
            r"listener\.name\.login\.sasl\.jaas\.config=\[hidden\]: .*MECHANISM",
        ),
        (
            {"listener.name.login.plain.sasl.jaas.config": USERS},
            r"PLAIN is not in sasl\.enabled\.mechanisms",
        ),
        (
            {"listener.name.both.scram-sha-512.sasl.jaas.config": f'M required password="{SECRET}'},
            r"listener\.name\.both\.scram-sha-512\.sasl\.jaas\.config: a quotation mark",
        ),
        (
            {"max.connections.per.ip.overrides": "10.0.0.1"},
            r"overrides: '10\.0\.0\.1' is malformed",
        ),
        (
            {"listener.name.login.max.connections": "-1"},
            r"listener\.name\.login\.max\.connections=-1 is out of bounds",
        ),
    ],
)
def test_what_a_listener_lacks_is_an_error(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        node(changes)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.req("S8")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
            r"sasl\.mechanism\.inter\.broker\.protocol is set, but OPEN speaks PLAINTEXT",
        ),
        (
            {"sasl.mechanism.controller.protocol": "PLAIN"},
            r"sasl\.mechanism\.controller\.protocol is set, but CONTROLLER speaks PLAINTEXT",
        ),
        (
            {"sasl.oauthbearer.expected.issuer": "https://login.example.org"},
            r"sasl\.oauthbearer\.expected\.issuer is set, but no listener has OAUTHBEARER",
        ),
        (
            {"sasl.oauthbearer.scope.claim.name": "scp"},
            r"sasl\.oauthbearer\.scope\.claim\.name=scp: the scopes of a token decide nothing",
        ),
        (
            {"listener.name.controller.max.connections": "5"},
            r"max\.connections=5: controllers' listeners have no such bound",
        ),
        (
            {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/"}
            | {"listener.security.protocol.map": ENCRYPTED_LOGINS},
            r"ssl\.principal\.mapping\.rules is set, but no listener speaks SSL",
        ),
    ],
    ids=["brokers", "controllers", "issuer", "scopes", "bound", "names"],
)
def test_a_key_that_nothing_looks_at_is_an_error(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as error:
        node(changes)
    assert SECRET not in str(error.value)


@pytest.mark.req("S8")
def test_a_controllers_listener_is_open_by_default_only_where_all_are() -> None:
    secure = "OPEN:PLAINTEXT,WEB:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL"
    with pytest.raises(ConfigError, match="no protocol for CONTROLLER, while other listeners"):
        node({"listener.security.protocol.map": secure})


@pytest.mark.req("S1")
def test_a_controller_may_have_the_keys_of_its_brokers_listeners() -> None:
    """Nodes share a file; what a broker does not listen to is still refused."""
    shared = {
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": "/data",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": USERS,
    }
    of_controller = {"process.roles": "controller", "node.id": "1"}
    make_config({**shared, **of_controller, "listeners": "CONTROLLER://:9093"}, pytest.fail)
    of_broker = {"process.roles": "broker", "node.id": "2", "listeners": "PLAINTEXT://:9092"}
    mapped = "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    with pytest.raises(ConfigError, match=r"listener\.name\.login.* no such listener"):
        make_config({**shared, **of_broker, "listener.security.protocol.map": mapped}, pytest.fail)


@pytest.mark.req("S1")
def test_a_listener_may_have_the_name_of_its_protocol() -> None:
    config = make_config(
        {
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/data",
            "listeners": "SSL://:9092",
            "security.inter.broker.protocol": "SSL",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.location": "/etc/node.jks",
        },
        pytest.fail,
    )
    assert config.inter_broker_listener == "SSL"
    assert config.security_protocol("SSL") == "SSL"


@pytest.mark.req("S4")
def test_a_plug_in_has_keys_of_its_own() -> None:
    """They begin with `authorizer.`, and are refused where nothing reads them."""
    own = {"authorizer.policy.url": "http://localhost:1"}
    config = node({**own, "authorizer.class.name": "mine"})
    assert config.written["authorizer.policy.url"] == "http://localhost:1"
    for name in ("", "standard"):
        with pytest.raises(ConfigError, match=r"authorizer\.policy\.url: .* no such key: remove"):
            node({**own, "authorizer.class.name": name})


def test_a_login_module_is_read_as_java_does() -> None:
    jaas = parse_jaas(
        ' org.example.Module\trequired a="x y" b=\'it"s\' c=plain d="q\\"\\\\;" e="" ; '
    )
    assert jaas.login_module == "org.example.Module"
    assert {name: jaas.option(name) for name in jaas.options} == {
        "a": "x y",
        "b": 'it"s',
        "c": "plain",
        "d": 'q"\\;',
        "e": "",
    }
    assert jaas.option("f") is None
    assert parse_jaas("M required;") == Jaas("M", {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M",
        "M required",
        "M required;;",
        "M required; N required;",
        f'M required password="{SECRET}"',
        f'M required password="{SECRET};',
        f'M required ="{SECRET}";',
        f'M required password "{SECRET}";',
        f"M required password={SECRET} {SECRET};",
        f'{SECRET} password="x";',
    ],
)
def test_a_malformed_login_module_is_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|close") as caught:
        parse_jaas(text)
    assert SECRET not in str(caught.value)
