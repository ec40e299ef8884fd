"""The keys of security: TLS, SASL, rules of access, limits of connections, and quotas.

Those of TLS and SASL may be set for one listener, as `listener.name.NAME.KEY`, in lower case; those
of SASL for one mechanism too, as `listener.name.NAME.MECHANISM.KEY`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import SecretStr

from raftctl.config._definition import Flag, Section, key, parsed_by
from raftctl.config.addresses import split_list
from raftctl.config.security import ClientAuth, StoreType
from raftctl.integers import INT_MAX, LONG_MAX


def _parse_users(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(";") if one.strip())


def _parse_counts(text: str) -> dict[str, int]:
    """Parse `HOST:COUNT,...`; the last colon counts, since an address of IPv6 has others."""
    counts = {}
    for item in split_list(text):
        host, _, count = item.rpartition(":")
        if not host or not (count.isascii() and count.isdigit()) or int(count) > INT_MAX:
            raise ValueError(f"{item!r} is malformed: write HOST:COUNT")
        counts[host] = int(count)
    return counts


def _parse_hosts(text: str) -> tuple[str, ...]:
    for host in split_list(text):
        if ":" in host or "/" in host or "*" in host:
            raise ValueError(f"{host!r} is no name: write it without a scheme and a port")
    return split_list(text)


def _parse_url(text: str) -> str | None:
    url = text.strip()
    if url and not url.startswith(("https:", "http:", "file:")):
        raise ValueError(f"{url!r} is no https:, http: or file: URL: write one")
    return url or None


StoreTypeName = Annotated[StoreType, parsed_by(lambda text: text.strip().upper())]
ClientAuthName = Annotated[ClientAuth, parsed_by(lambda text: text.strip().lower())]
Texts = Annotated[tuple[str, ...], parsed_by(split_list)]
Secret = SecretStr | None
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]
TlsVersions = Annotated[tuple[TlsVersion, ...], parsed_by(split_list)]
Users = Annotated[tuple[str, ...], parsed_by(_parse_users)]
Hosts = Annotated[tuple[str, ...], parsed_by(_parse_hosts)]
Counts = Annotated[dict[str, int], parsed_by(_parse_counts)]
Url = Annotated[str | None, parsed_by(_parse_url)]
Mechanism = Annotated[str, parsed_by(lambda text: text.strip().upper())]
Mechanisms = Annotated[
    tuple[str, ...], parsed_by(lambda text: tuple(one.upper() for one in split_list(text)))
]


class TlsKeys(Section):
    """TLS"""

    ssl_keystore_type: StoreTypeName = key("JKS", "What `ssl.keystore.location` is.")
    ssl_keystore_location: str | None = key(
        None, "The file with this node's private key and certificates."
    )
    ssl_keystore_password: Secret = key(None, "The password of that file; a PEM file has none.")
    ssl_keystore_key: Secret = key(
        None, "The private key as PEM text in PKCS #8, in place of a file (KIP-651)."
    )
    ssl_keystore_certificate_chain: Secret = key(
        None, "The certificates of that key as PEM text, its own first."
    )
    ssl_key_password: Secret = key(
        None, "The password of the private key, where it has one of its own."
    )
    ssl_truststore_type: StoreTypeName = key("JKS", "What `ssl.truststore.location` is.")
    ssl_truststore_location: str | None = key(
        None, "The file with the certificates that are trusted."
    )
    ssl_truststore_password: Secret = key(None, "The password of that file; a PEM file has none.")
    ssl_truststore_certificates: Secret = key(
        None, "The certificates that are trusted as PEM text, in place of a file."
    )
    ssl_client_auth: ClientAuthName = key(
        "none",
        "Whether a client of an SSL listener shows a certificate. For a SASL_SSL listener it has "
        "an effect as `listener.name.NAME.ssl.client.auth` only.",
    )
    ssl_enabled_protocols: TlsVersions = key(
        ("TLSv1.2", "TLSv1.3"), "The versions of TLS that are spoken."
    )
    ssl_protocol: TlsVersion = key("TLSv1.3", "The newest version of TLS that is offered.")
    ssl_cipher_suites: Texts = key(
        (), "The cipher suites that are spoken, by IANA's names. Default: what the library has."
    )
    ssl_principal_mapping_rules: str = key(
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes the name of its principal.",
    )
    ssl_endpoint_identification_algorithm: str = key(
        "https",
        "Whether a node that connects to another checks the name in its certificate: `https`; "
        "empty: it does not.",
    )


class SaslKeys(Section):
    """SASL"""

    sasl_enabled_mechanisms: Mechanisms = key(
        (), "The mechanisms of SASL listeners. No default here (Apache Kafka: GSSAPI)."
    )
    sasl_mechanism_inter_broker_protocol: Mechanism = key(
        "GSSAPI", "The mechanism by which brokers log in to each other; GSSAPI is not supported."
    )
    sasl_mechanism_controller_protocol: Mechanism = key(
        "GSSAPI", "The mechanism by which nodes log in to controllers; GSSAPI is not supported."
    )
    sasl_server_max_receive_size: int = key(
        524_288, "The largest request before its client has logged in.", at_least=1
    )
    connections_max_reauth_ms: int = key(
        0,
        "How long a session lasts before its client must log in again (KIP-368), or shorter if "
        "its token ends before; 0: as long as its connection.",
        at_least=0,
        at_most=LONG_MAX,
    )
    sasl_oauthbearer_jwks_endpoint_url: Url = key(
        None, "Where the public keys of tokens are: an `https:`, `http:` or `file:` URL."
    )
    sasl_oauthbearer_token_endpoint_url: Url = key(
        None, "Where a node that logs in by OAUTHBEARER gets its token."
    )
    sasl_oauthbearer_expected_audience: Texts = key(
        (), "A token is for one of these. Default: for anybody."
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        None, "Who has issued a token. Default: anybody whose key is there."
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        30, "How far the clock of the issuer may be from the node's.", at_least=0
    )
    sasl_oauthbearer_sub_claim_name: str = key("sub", "The claim with the principal's name.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        3_600_000, "How often the public keys are read.", at_least=1, at_most=LONG_MAX
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        100, "The wait after the first failure to read them.", at_least=1, at_most=LONG_MAX
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        10_000, "The longest such wait.", at_least=1, at_most=LONG_MAX
    )


class TokenKeys(Section):
    """Delegation tokens"""

    delegation_token_secret_key: Secret = key(
        None,
        "What delegation tokens are signed with (KIP-48), the same on all brokers and controllers. "
        "Default: there are no tokens.",
    )
    delegation_token_max_lifetime_ms: int = key(
        604_800_000, "How long a token may be renewed.", at_least=1, at_most=LONG_MAX
    )
    delegation_token_expiry_time_ms: int = key(
        86_400_000, "How long a token that is not renewed is valid.", at_least=1, at_most=LONG_MAX
    )
    delegation_token_expiry_check_interval_ms: int = key(
        3_600_000, "How often it is looked for tokens that are over.", at_least=1, at_most=LONG_MAX
    )


class AccessKeys(Section):
    """Rules of access"""

    authorizer_class_name: str = key(
        "",
        "Who decides what a principal may do: a name of the entry points `raftctl.authorizers`, "
        "such as `standard`, which Apache Kafka's class of its StandardAuthorizer stands for too. "
        "The same on all nodes. Empty: everybody may do everything. A plug-in's own keys begin "
        "with `authorizer.`.",
    )
    super_users: Users = key(
        (), "The principals that may do everything, `User:NAME;...`. Brokers need it."
    )
    allow_everyone_if_no_acl_found: Flag = key(
        False, "Whether everybody may do everything with a resource that no rule is about."
    )
    http_allowed_hosts: Hosts = key(
        (),
        "Names by which HTTP clients reach this node, besides those of its listeners and of "
        "the quorum: `HOST,...`. Requests with another name in `Host` are refused.",
    )


class LimitKeys(Section):
    """Limits of connections and quotas"""

    max_connections_per_ip: int = key(
        INT_MAX, "The connections of one address; beyond it new ones are closed.", at_least=0
    )
    max_connections_per_ip_overrides: Counts = key(
        {}, "The same for some addresses, `HOST:COUNT,...`."
    )
    max_connection_creation_rate: int = key(
        INT_MAX,
        "The new connections a second of the broker; of one listener as `listener.name.NAME."
        "max.connection.creation.rate`.",
        at_least=1,
    )
    connection_failed_authentication_delay_ms: int = key(
        100,
        "How long a connection stays open after its client has failed to log in.",
        at_least=0,
    )
    client_quota_callback_class: str = key(
        "",
        "Who decides which quota a client has: a name of the entry points "
        "`raftctl.client_quota_callbacks`. Empty: the quotas that are set. A plug-in's own keys "
        "begin with `client.quota.callback.`.",
    )
    quota_window_num: int = key(
        11, "The windows over which the rates of client quotas are measured.", at_least=1
    )
    quota_window_size_seconds: int = key(1, "The length of one of them.", at_least=1)
    controller_quota_window_num: int = key(
        11, "The windows over which the rate of changes to topics is measured.", at_least=1
    )
    controller_quota_window_size_seconds: int = key(1, "The length of one of them.", at_least=1)
