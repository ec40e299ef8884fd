"""Keys of listeners that change while a broker runs (KIP-226, KIP-402, KIP-612).

Each is `listener.name.NAME.KEY`. Stores of certificates are files of one broker, so their keys are
set for one broker. Limits of connections may be set for all. Every other key of a listener stands
in the broker's file, and so do the listeners: where metadata is a log, Apache Kafka neither adds
nor removes one.

Source: Apache Kafka's DynamicBrokerConfig, SslConfigs and SocketServer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import ConfigType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STORE_KEYS: Mapping[str, ConfigType] = {
    "ssl.key.password": ConfigType.PASSWORD,
    "ssl.keystore.certificate.chain": ConfigType.PASSWORD,
    "ssl.keystore.key": ConfigType.PASSWORD,
    "ssl.keystore.location": ConfigType.STRING,
    "ssl.keystore.password": ConfigType.PASSWORD,
    "ssl.keystore.type": ConfigType.STRING,
    "ssl.truststore.certificates": ConfigType.PASSWORD,
    "ssl.truststore.location": ConfigType.STRING,
    "ssl.truststore.password": ConfigType.PASSWORD,
    "ssl.truststore.type": ConfigType.STRING,
}
"""Keys of the stores of one listener of one broker, after its prefix."""
LIMIT_KEYS = ("max.connection.creation.rate", "max.connections")
"""Keys that one listener, or all of a broker together, may have."""
BROKER_LIMIT_KEYS = (*LIMIT_KEYS, "max.connections.per.ip", "max.connections.per.ip.overrides")
"""Keys of the limits of a broker."""
_OF_A_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(.+)")
_NOT_OF_LISTENERS = ("listeners", "listener.security.protocol.map")
_NO_NEW_LISTENER = "Advertised listeners cannot be altered when using a Raft-based metadata quorum."


def dynamic_listener_key(name: str) -> str | None:
    """Return a dynamic key of a listener without its prefix; None for any other key."""
    found = _OF_A_LISTENER.fullmatch(name)
    key = None if found is None else found[2]
    return key if key in STORE_KEYS or key in LIMIT_KEYS else None


def listener_key_type(name: str) -> ConfigType:
    """Return the type of a listener's dynamic key."""
    return STORE_KEYS.get(dynamic_listener_key(name) or "", ConfigType.INT)


def is_secret(name: str) -> bool:
    """Return whether a dynamic config has a value that is shown to nobody."""
    return STORE_KEYS.get(dynamic_listener_key(name) or "") is ConfigType.PASSWORD


def connection_overrides(*configs: Mapping[str, str]) -> dict[str, str]:
    """Return what configs say of connections and their stores; later ones win."""
    return {
        name: value
        for values in configs
        for name, value in values.items()
        if name in BROKER_LIMIT_KEYS or dynamic_listener_key(name) is not None
    }


def check_listener_keys(names: Iterable[str], *, one_broker: bool) -> None:
    """Raise KafkaError(INVALID_REQUEST) for a key of a listener that cannot change so."""
    names = sorted(names)
    bare = [name for name in names if name in STORE_KEYS]
    if bare:
        _refuse(
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix",
            bare,
        )
    if any(name in _NOT_OF_LISTENERS for name in names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, _NO_NEW_LISTENER)
    for name in names:
        found = _OF_A_LISTENER.fullmatch(name)
        if found is not None and dynamic_listener_key(name) is None:
            text = (
                f"{name}: Configs cannot be updated dynamically for existing listener "
                f"{found[1].upper()}, restart broker or create a new listener for update"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    of_one = [name for name in names if dynamic_listener_key(name) in STORE_KEYS]
    if of_one and not one_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            of_one,
        )


def _refuse(why: str, names: list[str]) -> None:
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(names)}]")
