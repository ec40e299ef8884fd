"""What a configuration asks for of security, and does not get: an error at start, never a warning.

Each problem is a sentence with the key, the reason and the remedy (row S8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.config._complaints import written
from raftctl.config._definition import key_of
from raftctl.config._listeners import (
    JAAS_KEY,
    LIMIT_KEYS,
    LISTENER_PREFIX,
    PLAINTEXT,
    listener_prefix,
    mechanism_prefix,
)
from raftctl.config._security_keys import SaslKeys, TlsKeys
from raftctl.config._unused import is_harmless, why_refused
from raftctl.config.security import LOGIN_MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.config._definition import Section
    from raftctl.config._listeners import NodeListeners
    from raftctl.config.security import (
        ListenerSecurity,
        MechanismSettings,
        SaslSettings,
        StoreSettings,
        TlsSettings,
    )

AUTHORIZER_PREFIX = "authorizer."
QUOTA_CALLBACK_PREFIX = "client.quota.callback."
STANDARD_AUTHORIZERS = (
    "standard",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
_PLAIN, _OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_MECHANISMS = (_PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER, "GSSAPI")
_TLS_KEYS = frozenset(map(key_of, TlsKeys.model_fields))
_SASL_KEYS = frozenset(map(key_of, SaslKeys.model_fields))


def security_problems(node: NodeListeners) -> Iterator[str]:
    """Return what is asked for and is not in force, or cannot be."""
    yield from _protocol_problems(node)
    yield from _own_key_problems(node)
    yield from _idle_keys(node)
    yield from _authorizer_problems(node)
    yield from _quota_callback_problems(node)
    bound = {listener.name for listener in node.bound_listeners}
    for name in node.used_listeners:
        # ValueError for a limit that is no number.
        node.listener_limits(name)
        security = node.listener_security(name)
        if security.tls is not None:
            yield from _tls_problems(name, security.tls, is_bound=name in bound)
        if security.sasl is not None:
            yield from _sasl_problems(security, security.sasl, is_bound=name in bound)


# --- what is not built ----------------------------------------------------------------------------


def _protocol_problems(node: NodeListeners) -> Iterator[str]:
    protocols = {name: node.security_protocol(name) for name in node.used_listeners}
    mapped = node.listener_security_protocol_map
    of_brokers = {listener.name for listener in node.broker_listeners}
    for name in protocols:
        if name not in mapped and name in of_brokers:
            yield (
                f"listener.security.protocol.map has no protocol for {name}: add {name}:PLAINTEXT"
            )
        elif name not in mapped and set(protocols.values()) != {PLAINTEXT}:
            # Beside a listener that is protected, an open one is nothing to fall back to.
            yield (
                f"listener.security.protocol.map has no protocol for {name}, while other listeners "
                f"are not PLAINTEXT: add {name}:PROTOCOL"
            )
    if node.inter_broker_listener_name and node.security_inter_broker_protocol:
        yield (
            "security.inter.broker.protocol and inter.broker.listener.name are both set: remove "
            "the first"
        )


# --- keys that nothing looks at -------------------------------------------------------------------


def _own_key_problems(node: NodeListeners) -> Iterator[str]:
    """Return what is wrong with the keys of `listener.name.`."""
    for whole, value in node.written.items():
        if not whole.startswith(LISTENER_PREFIX):
            continue
        name = node.listener_of(whole)
        if name is None:
            yield (
                f"{whole}: there is no such listener among {', '.join(node.named_listeners)}: "
                "write its name in lower case, or remove the key"
            )
            continue
        why = _why_not_own(node, name, whole.removeprefix(listener_prefix(name)), value)
        if why:
            yield f"{written(whole, value)}: {why}"


def _why_not_own(node: NodeListeners, listener: str, rest: str, value: str) -> str | None:
    mechanism = next((one for one in _MECHANISMS if rest.startswith(mechanism_prefix(one))), None)
    key = rest if mechanism is None else rest.removeprefix(mechanism_prefix(mechanism))
    protocol = node.security_protocol(listener)
    if key in LIMIT_KEYS and mechanism is None:
        if listener in node.controller_listener_names:
            return "controllers' listeners have no such bound: remove the key"
        is_http = node.http_listener is not None and listener == node.http_listener.name
        return "http.listener has no such bound: remove the key" if is_http else None
    if key in _TLS_KEYS and mechanism is None:
        idle = not protocol.endswith("SSL") and not _is_default(TlsKeys, key, value)
        return f"the listener speaks {protocol}: remove the key" if idle else None
    if key == JAAS_KEY and mechanism is None:
        return "a login module is one of a mechanism: write listener.name.NAME.MECHANISM." + key
    if key in _SASL_KEYS or key == JAAS_KEY:
        if not protocol.startswith("SASL"):
            idle = key == JAAS_KEY or not _is_default(SaslKeys, key, value)
            return f"the listener speaks {protocol}: remove the key" if idle else None
        if mechanism is not None and mechanism not in _spoken(node, listener):
            return f"{mechanism} is not in sasl.enabled.mechanisms: add it there or remove the key"
        return None
    if is_harmless(key, value):
        return None
    return why_refused(key, value) or "it cannot be set for one listener: remove the key"


def _spoken(node: NodeListeners, listener: str) -> set[str]:
    """Return the mechanisms that clients, or this node as a client, use on a listener."""
    sasl = node.listener_security(listener).sasl
    if sasl is None:
        return set()
    return {*sasl.mechanisms, *([] if sasl.login is None else [sasl.login.name])}


def _is_default(section: type[Section], key: str, value: str) -> bool:
    name = key.replace(".", "_")
    parsed = section.model_validate({key: value.strip()})
    return bool(getattr(parsed, name) == section.model_fields[name].default)


def _idle_keys(node: NodeListeners) -> Iterator[str]:
    """Return the keys of the node that are set while no listener looks at them."""
    protocols = {node.security_protocol(name) for name in node.named_listeners}
    if not any(protocol.endswith("SSL") for protocol in protocols):
        yield from _set_for_nothing(node, TlsKeys, "no listener speaks SSL or SASL_SSL")
    elif "SSL" not in protocols and node.ssl_client_auth != "none":
        yield (
            f"ssl.client.auth={node.ssl_client_auth}: no listener speaks SSL, and on SASL_SSL only "
            "listener.name.NAME.ssl.client.auth has an effect: write that"
        )
    if "SSL" not in protocols and node.ssl_principal_mapping_rules != "DEFAULT":
        yield (
            "ssl.principal.mapping.rules is set, but no listener speaks SSL, and on SASL_SSL the "
            "login decides: remove the key"
        )
    if not any(protocol.startswith("SASL") for protocol in protocols):
        yield from _set_for_nothing(node, SaslKeys, "no listener speaks SASL_SSL or SASL_PLAINTEXT")
        return
    yield from _idle_logins(node)
    spoken = {mechanism for name in node.named_listeners for mechanism in _spoken(node, name)}
    if _OAUTHBEARER not in spoken:
        keys = (key for key in _SASL_KEYS if key.startswith("sasl.oauthbearer."))
        for key in sorted(keys):
            if not _is_default_of(node, key):
                yield f"{key} is set, but no listener has OAUTHBEARER: add it, or remove the key"


def _idle_logins(node: NodeListeners) -> Iterator[str]:
    """Return the mechanisms by which nodes should log in, where none of them does."""
    where = {
        "sasl.mechanism.controller.protocol": node.controller_listener_names,
        "sasl.mechanism.inter.broker.protocol": (node.inter_broker_listener,),
    }
    for key, names in where.items():
        protocols = {node.security_protocol(name) for name in names}
        asks = "SASL_SSL" in protocols or "SASL_PLAINTEXT" in protocols
        is_used = key.endswith("controller.protocol") or node.broker_listeners
        if is_used and not asks and not _is_default_of(node, key):
            yield (
                f"{key} is set, but {', '.join(names)} speaks {', '.join(sorted(protocols))}: "
                "give it a protocol with SASL, or remove the key"
            )


def _is_default_of(node: NodeListeners, key: str) -> bool:
    name = key.replace(".", "_")
    return bool(getattr(node, name) == type(node).model_fields[name].default)


def _set_for_nothing(node: NodeListeners, section: type[Section], why: str) -> Iterator[str]:
    for name, info in section.model_fields.items():
        if getattr(node, name) != info.default:
            yield f"{key_of(name)} is set, but {why}: add such a listener, or remove the key"


def _quota_callback_problems(node: NodeListeners) -> Iterator[str]:
    if not node.client_quota_callback_class:
        own = (key for key in node.written if key.startswith(QUOTA_CALLBACK_PREFIX))
        for key in own:
            if key != "client.quota.callback.class":
                yield f"{key}: there is no client.quota.callback.class: set one, or remove the key"


def _authorizer_problems(node: NodeListeners) -> Iterator[str]:
    chosen = node.authorizer_class_name.strip()
    own = [
        key
        for key in node.written
        if key.startswith(AUTHORIZER_PREFIX) and key != "authorizer.class.name"
    ]
    if own and chosen in ("", *STANDARD_AUTHORIZERS):
        yield f"{own[0]}: {chosen or 'there is no authorizer, which'} has no such key: remove it"
    if chosen:
        return
    remedy = "set authorizer.class.name=standard, or remove the key"
    if node.super_users:
        yield f"super.users is set, but everybody may do everything: {remedy}"
    asked = "allow_everyone_if_no_acl_found" in node.model_fields_set
    if asked and not node.allow_everyone_if_no_acl_found:
        yield f"allow.everyone.if.no.acl.found=false, but there is no authorizer: {remedy}"


# --- what a listener lacks ------------------------------------------------------------------------


def _tls_problems(listener: str, tls: TlsSettings, *, is_bound: bool) -> Iterator[str]:
    if is_bound and not tls.keystore.is_given:
        yield (
            f"ssl.keystore.location: the listener {listener} speaks TLS without a certificate: set "
            "the key, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    if is_bound and tls.client_auth != "none" and not tls.truststore.is_given:
        yield (
            f"ssl.client.auth={tls.client_auth}: nobody's certificate is trusted by {listener}: "
            "set ssl.truststore.location or ssl.truststore.certificates"
        )
    yield from _store_problems("keystore", "certificate.chain", tls.keystore)
    yield from _store_problems("truststore", "certificates", tls.truststore)
    if bool(tls.keystore.key) != bool(tls.keystore.certificates):
        yield "ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both"
    if not tls.enabled_protocols:
        yield "ssl.enabled.protocols is empty: write TLSv1.2,TLSv1.3"
    elif tls.protocol not in tls.enabled_protocols and min(tls.enabled_protocols) > tls.protocol:
        yield f"ssl.protocol={tls.protocol} is older than ssl.enabled.protocols: change one"


def _store_problems(which: str, text_key: str, store: StoreSettings) -> Iterator[str]:
    if store.location and (store.key or store.certificates):
        yield f"ssl.{which}.location and ssl.{which}.{text_key} are both set: remove one"
    if store.type != "PEM" and store.certificates:
        yield f"ssl.{which}.type={store.type}, but ssl.{which}.{text_key} is PEM: write PEM"
    if store.type == "PEM" and store.password:
        yield f"ssl.{which}.password: a PEM file has none: remove it, or set ssl.key.password"


def _sasl_problems(
    security: ListenerSecurity, sasl: SaslSettings, *, is_bound: bool
) -> Iterator[str]:
    prefix = listener_prefix(security.name)
    if is_bound and not sasl.mechanisms:
        yield (
            f"sasl.enabled.mechanisms is empty, but {security.name} speaks {security.protocol}: "
            f"name the mechanisms ({', '.join(LOGIN_MODULES)})"
        )
    for one in (*sasl.mechanisms.values(), *([] if sasl.login is None else [sasl.login])):
        yield from _module_problems(prefix, one)
    for mechanism in sasl.mechanisms.values() if is_bound else ():
        yield from _unknown_mechanism("sasl.enabled.mechanisms", mechanism)
        yield from _server_problems(prefix, mechanism)
    if sasl.login is not None:
        yield from _login_problems(prefix, sasl.login, sasl, is_bound=is_bound)


def _unknown_mechanism(key: str, mechanism: MechanismSettings) -> Iterator[str]:
    if mechanism.name not in LOGIN_MODULES:
        yield f"{key}: {mechanism.name} is not supported: use {', '.join(LOGIN_MODULES)}"


def _module_problems(prefix: str, mechanism: MechanismSettings) -> Iterator[str]:
    expected = LOGIN_MODULES.get(mechanism.name)
    if expected and mechanism.jaas is not None and mechanism.jaas.login_module != expected:
        key = f"{prefix}{mechanism_prefix(mechanism.name)}{JAAS_KEY}"
        yield f"{key}: the login module of {mechanism.name} is another: write {expected}"


def _server_problems(prefix: str, mechanism: MechanismSettings) -> Iterator[str]:
    key = f"{prefix}{mechanism_prefix(mechanism.name)}{JAAS_KEY}"
    jaas = mechanism.jaas
    if mechanism.name == _PLAIN and (
        jaas is None or not any(option.startswith("user_") for option in jaas.options)
    ):
        yield (
            f"{key}: nobody can log in by PLAIN: write {LOGIN_MODULES[_PLAIN]} required "
            'user_NAME="PASSWORD";'
        )
    if mechanism.name == _OAUTHBEARER and not mechanism.oauthbearer.jwks_endpoint_url:
        yield (
            "sasl.oauthbearer.jwks.endpoint.url is not set, and unsigned tokens are not taken: "
            "set it to the URL of the public keys"
        )


def _login_problems(
    prefix: str, login: MechanismSettings, sasl: SaslSettings, *, is_bound: bool
) -> Iterator[str]:
    key = f"{prefix}{mechanism_prefix(login.name)}{JAAS_KEY}"
    which = "sasl.mechanism.inter.broker.protocol or sasl.mechanism.controller.protocol"
    yield from _unknown_mechanism(which, login)
    if is_bound and login.name not in sasl.mechanisms:
        yield (
            f"{which}: nodes log in by {login.name}, which is not in sasl.enabled.mechanisms: "
            "add it there"
        )
    if login.name != _OAUTHBEARER and (
        login.jaas is None or not (login.jaas.option("username") and login.jaas.option("password"))
    ):
        yield f'{key}: nodes have nothing to log in with: add username="..." password="..."'
