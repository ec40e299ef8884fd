"""The listeners of a node, and what protects each: its own keys before the node's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import PrivateAttr, ValidationError

from raftctl.config._complaints import complaint, is_secret
from raftctl.config._definition import Section, key, key_of
from raftctl.config._security_keys import AccessKeys, LimitKeys, SaslKeys, TlsKeys, TokenKeys
from raftctl.config.keys import ListenerKeys, QuorumKeys
from raftctl.config.security import (
    Jaas,
    ListenerLimits,
    ListenerSecurity,
    MechanismSettings,
    OAuthBearerSettings,
    SaslSettings,
    SecurityProtocol,
    StoreSettings,
    TlsSettings,
    parse_jaas,
)
from raftctl.integers import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr

    from raftctl.config.addresses import Listener

PLAINTEXT: SecurityProtocol = "PLAINTEXT"
JAAS_KEY = "sasl.jaas.config"
LIMIT_KEYS = ("max.connections", "max.connection.creation.rate")
LISTENER_PREFIX = "listener.name."

SectionT = TypeVar("SectionT", bound=Section)


class NodeListeners(ListenerKeys, QuorumKeys, TlsKeys, SaslKeys, TokenKeys, AccessKeys, LimitKeys):
    """The keys of listeners and of what protects them, with what follows from both."""

    _written: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def written(self) -> Mapping[str, str]:
        """The keys and values as they were written, for plug-ins. It holds secrets."""
        return self._written

    @property
    def written_secrets(self) -> tuple[str, ...]:
        """The keys that were written whose values nobody else should read.

        Certificates are not among them: everybody who connects sees those.
        """
        secret = (key for key, value in self._written.items() if is_secret(key) and value)
        return tuple(key for key in secret if "certificate" not in key)

    @property
    def described_listener_keys(self) -> dict[str, str | None]:
        """The keys of `listener.name.` as they were written; None for the value of a secret."""
        return {
            key: None if is_secret(key) else value
            for key, value in self._written.items()
            if key.startswith(LISTENER_PREFIX)
        }

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Listeners that a controller binds; empty on a node that is only a broker."""
        names = self.controller_listener_names
        return tuple(listener for listener in self.listeners if listener.name in names)

    @property
    def controller_endpoint(self) -> Listener | None:
        """Address at which others reach this controller; None on a node that is only a broker."""
        names = self.controller_listener_names
        advertised = [listener for listener in self.advertised_listeners if listener.name in names]
        return next(iter((*advertised, *self.controller_listeners)), None)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Listeners that a broker binds; empty on a node that is only a controller."""
        names = self.controller_listener_names
        return tuple(listener for listener in self.listeners if listener.name not in names)

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """Addresses that a broker registers, before ports of 0 are known."""
        names = self.controller_listener_names
        advertised = tuple(
            listener for listener in self.advertised_listeners if listener.name not in names
        )
        return advertised or self.broker_listeners

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener over which this broker replicates."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name
        if self.security_inter_broker_protocol is not None:
            return self.security_inter_broker_protocol
        names = [listener.name for listener in self.advertised]
        return names[0] if names and PLAINTEXT not in names else PLAINTEXT

    @property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """All that the node binds: `listeners` and `http.listener`."""
        http = () if self.http_listener is None else (self.http_listener,)
        return (*self.listeners, *http)

    @property
    def used_listeners(self) -> tuple[str, ...]:
        """The listeners that the node binds or speaks to, none twice."""
        bound = (listener.name for listener in self.bound_listeners)
        return tuple(dict.fromkeys((*bound, *self.controller_listener_names)))

    @property
    def named_listeners(self) -> tuple[str, ...]:
        """The listeners that keys may be about.

        A node that is only a controller may have the keys of its brokers' listeners, so that nodes
        can share a file: those of the map.
        """
        of_brokers = () if self.broker_listeners else self.listener_security_protocol_map
        return tuple(dict.fromkeys((*self.used_listeners, *of_brokers)))

    def security_protocol(self, listener_name: str) -> SecurityProtocol:
        """Return the protocol of a listener; controllers' listeners default to PLAINTEXT."""
        return self.listener_security_protocol_map.get(listener_name, PLAINTEXT)

    def listener_security(self, listener_name: str) -> ListenerSecurity:
        """Return what protects a listener; for others' listeners, how this node connects there."""
        protocol = self.security_protocol(listener_name)
        own = self.own_keys(listener_name)
        return ListenerSecurity(
            listener_name,
            protocol,
            self._tls(listener_name, own) if protocol.endswith("SSL") else None,
            self._sasl(listener_name, own) if protocol.startswith("SASL") else None,
        )

    def listener_limits(self, listener_name: str) -> ListenerLimits:
        """Return the bounds of a listener's connections: its own, else those of the node."""
        own, prefix = self.own_keys(listener_name), listener_prefix(listener_name)
        keys = _overridden(_ListenerLimitKeys, self, prefix, own)
        return ListenerLimits(keys.max_connections, keys.max_connection_creation_rate)

    def own_keys(self, listener_name: str) -> dict[str, str]:
        """Return the keys of `listener.name.NAME.`, without that, as they were written."""
        return {
            key.removeprefix(listener_prefix(listener_name)): value
            for key, value in self._written.items()
            if self.listener_of(key) == listener_name
        }

    def listener_of(self, key: str) -> str | None:
        """Return the listener that a key is about alone; None if there is none of its name."""
        names = [name for name in self.named_listeners if key.startswith(listener_prefix(name))]
        return max(names, key=len, default=None)

    def _tls(self, listener_name: str, own: Mapping[str, str]) -> TlsSettings:
        prefix = listener_prefix(listener_name)
        keys = _overridden(TlsKeys, self, prefix, own)
        if self.security_protocol(listener_name) == "SASL_SSL" and "ssl.client.auth" not in own:
            # As with Apache Kafka: who logs in by SASL needs no certificate (KIP-684).
            keys = keys.model_copy(update={"ssl_client_auth": "none"})
        return tls_settings(keys)

    def _sasl(self, listener_name: str, own: Mapping[str, str]) -> SaslSettings:
        prefix = listener_prefix(listener_name)
        keys = _overridden(SaslKeys, self, prefix, own)
        login = None
        if listener_name in self.controller_listener_names:
            login = keys.sasl_mechanism_controller_protocol
        elif listener_name == self.inter_broker_listener:
            login = keys.sasl_mechanism_inter_broker_protocol

        def settings(mechanism: str) -> MechanismSettings:
            inner = mechanism_prefix(mechanism)
            mine = {
                key.removeprefix(inner): value
                for key, value in own.items()
                if key.startswith(inner)
            }
            jaas = _jaas(prefix + inner + JAAS_KEY, mine.get(JAAS_KEY))
            return mechanism_settings(
                mechanism, _overridden(SaslKeys, keys, prefix + inner, mine), jaas
            )

        return SaslSettings(
            {name: settings(name) for name in keys.sasl_enabled_mechanisms},
            None if login is None else settings(login),
            keys.sasl_server_max_receive_size,
        )


class _ListenerLimitKeys(Section):
    max_connections: int = key(INT_MAX, "See ListenerKeys.", at_least=0)
    max_connection_creation_rate: int = key(INT_MAX, "See LimitKeys.", at_least=1)


def listener_prefix(listener_name: str) -> str:
    """Return how the keys of a listener begin: in lower case, as with Apache Kafka."""
    return f"{LISTENER_PREFIX}{listener_name.lower()}."


def mechanism_prefix(mechanism: str) -> str:
    """Return how the keys of a mechanism begin, after those of its listener."""
    return f"{mechanism.lower()}."


def tls_settings(keys: TlsKeys) -> TlsSettings:
    """Return the settings that the keys ask for."""
    return TlsSettings(
        StoreSettings(
            keys.ssl_keystore_type,
            keys.ssl_keystore_location,
            keys.ssl_keystore_password,
            keys.ssl_keystore_key,
            _text(keys.ssl_keystore_certificate_chain),
        ),
        keys.ssl_key_password,
        StoreSettings(
            keys.ssl_truststore_type,
            keys.ssl_truststore_location,
            keys.ssl_truststore_password,
            certificates=_text(keys.ssl_truststore_certificates),
        ),
        keys.ssl_client_auth,
        keys.ssl_enabled_protocols,
        keys.ssl_protocol,
        keys.ssl_cipher_suites,
        keys.ssl_principal_mapping_rules,
        keys.ssl_endpoint_identification_algorithm,
    )


def _text(given: SecretStr | None) -> str | None:
    return None if given is None else given.get_secret_value()


def mechanism_settings(name: str, keys: SaslKeys, jaas: Jaas | None) -> MechanismSettings:
    """Return the settings of a mechanism that the keys ask for."""
    return MechanismSettings(
        name,
        jaas,
        keys.connections_max_reauth_ms,
        OAuthBearerSettings(
            keys.sasl_oauthbearer_jwks_endpoint_url,
            keys.sasl_oauthbearer_token_endpoint_url,
            keys.sasl_oauthbearer_expected_audience,
            keys.sasl_oauthbearer_expected_issuer,
            keys.sasl_oauthbearer_clock_skew_seconds,
            keys.sasl_oauthbearer_sub_claim_name,
            keys.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            keys.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        ),
    )


def _overridden(
    kind: type[SectionT], base: Section, prefix: str, own: Mapping[str, str]
) -> SectionT:
    """Return the keys of one section from `base`, those of `own` in their place."""
    fields = kind.model_fields
    values = {key_of(name): getattr(base, name) for name in fields}
    try:
        return kind.model_validate(values | {key: own[key].strip() for key in values if key in own})
    except ValidationError as error:
        raise ValueError(complaint(error, prefix)) from None


def _jaas(key: str, text: str | None) -> Jaas | None:
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
