"""Free loopback ports that stay free while a node is down."""

from __future__ import annotations

import random
import socket
import struct

from raftctl.errors import ConfigError
from raftctl.localcluster.layout import HOST

# Below the ports that systems give to outgoing connections: were a killed node's port one of
# those, a client that keeps dialling it could be given the port itself, and the node lose it.
_LOWEST, _HIGHEST = 20_000, 32_000
_ATTEMPTS = 10_000
# The first that any Kafka client asks: length, then api key, version, correlation id, no client id.
_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 0, -1)


def free_ports(count: int) -> list[int]:
    """`count` different ports on which nothing listens now."""
    found: list[int] = []
    for _ in range(_ATTEMPTS):
        if len(found) == count:
            return found
        port = random.randint(_LOWEST, _HIGHEST)
        if port not in found and is_free(port):
            found.append(port)
    raise ConfigError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")


def is_free(port: int) -> bool:
    """Whether a node could listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def serves(port: int, timeout_s: float) -> bool:
    """Whether a broker answers a request there; one that has not registered yet makes it wait."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(_API_VERSIONS_REQUEST)
            return bool(connection.recv(1))
    except OSError:
        return False
