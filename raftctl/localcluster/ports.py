"""Free loopback ports that stay free while a node is down."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import ssl
import struct
from functools import cache
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError
from raftctl.localcluster.layout import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below the ports that systems give to outgoing connections: were a killed node's port one of
# those, a client that keeps dialling it could be given the port itself, and the node lose it.
_LOWEST, _HIGHEST = 20_000, 32_000
# Twice the nodes of the largest cluster, and more: each may have a relay before it.
_BLOCK = 250
# The first that any Kafka client asks: length, then api key, version, correlation id, no client id.
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 0, -1)


def free_ports(count: int) -> list[int]:
    """`count` different ports on which nothing listens now.

    They come from a block that no other process gives ports of while this one runs, and come
    again only after the rest of the block: of clusters that are made side by side, none is given
    a port on which another's node does not listen yet.

    Raises:
        ConfigError: There are not so many; `count` is at most 249.
    """
    once_around = itertools.islice(_own_ports(), _BLOCK - 1)
    found = list(itertools.islice(filter(is_free, once_around), count))
    if len(found) < count:
        raise ConfigError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")
    return found


@cache
def _own_ports() -> Iterator[int]:
    """The ports of this process's block, again and again, from anywhere in it."""
    starts = list(range(_LOWEST, _HIGHEST - _BLOCK + 1, _BLOCK))
    random.shuffle(starts)
    for start in starts:
        if (lock := _listen(start)) is not None:
            return _again_and_again(range(start + 1, start + _BLOCK), lock)
    raise ConfigError(f"other processes have taken all ports between {_LOWEST} and {_HIGHEST}")


def _again_and_again(ports: range, lock: socket.socket) -> Iterator[int]:
    """Holds the lock, the block's first port, until the process ends."""
    # From anywhere: a node that is down may keep a port of a process that has ended.
    first = random.randrange(len(ports))
    with lock:
        yield from itertools.cycle([*ports[first:], *ports[:first]])


def is_free(port: int) -> bool:
    """Return whether a node could listen on the port."""
    if (probe := _listen(port)) is None:
        return False
    probe.close()
    return True


def _listen(port: int) -> socket.socket | None:
    """A socket that listens there; None where another does."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(1)
    except OSError:
        listening.close()
        return None
    return listening


def serves(host: str, port: int, timeout_s: float, *, encrypted: bool = False) -> bool:
    """Return whether a broker answers a request there; an unregistered one makes it wait.

    One that asks for the certificate of a client is taken to serve: there is none to show.
    """
    try:
        with contextlib.ExitStack() as stack:
            plain = socket.create_connection((host, port), timeout=timeout_s)
            connection = stack.enter_context(plain)
            if encrypted:
                connection = stack.enter_context(_unverified().wrap_socket(connection))
            connection.sendall(API_VERSIONS_REQUEST)
            return bool(connection.recv(1))
    except ssl.SSLError:
        return encrypted
    except OSError:
        return False


def _unverified() -> ssl.SSLContext:
    """Return what is enough to ask whether somebody is there: nothing secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
