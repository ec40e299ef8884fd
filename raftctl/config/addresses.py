"""Voters and listeners as they are written in a configuration: values and their parsers.

Pure. The parsers raise ValueError with the remedy; the caller adds the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_HOST = "127.0.0.1"
"""Host of a listener without one: loopback, so that nothing is exposed by omission."""

_PORT_LIMIT = 65_535
_VOTER = re.compile(r"(\d{1,9})@(.+)")
_LISTENER = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)://(.*)")


@dataclass(frozen=True, slots=True)
class Voter:
    """Voter of the quorum: `id@host:port`."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Server:
    """Address of a server: `host:port`."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """Named address: `NAME://host:port`. Port 0 lets the system choose."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{_bracketed(self.host)}:{self.port}"


def parse_voters(text: str) -> tuple[Voter, ...]:
    """Parse `id@host:port,...`; ValueError if malformed or if an id or an address repeats."""
    voters = tuple(_parse_voter(item) for item in split_list(text))
    if len({voter.node_id for voter in voters}) < len(voters):
        raise ValueError("a node id appears twice: give each voter its own")
    if len({(voter.host, voter.port) for voter in voters}) < len(voters):
        raise ValueError("an address appears twice: give each voter its own")
    return voters


def parse_servers(text: str) -> tuple[Server, ...]:
    """Parse `host:port,...`; ValueError if malformed."""
    return tuple(_parse_server(item) for item in split_list(text))


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Parse `NAME://host:port,...`; ValueError if malformed or if a name repeats."""
    listeners = tuple(_parse_listener(item) for item in split_list(text))
    if len({listener.name for listener in listeners}) < len(listeners):
        raise ValueError("a listener name appears twice: give each listener its own")
    return listeners


def parse_listener(text: str) -> Listener | None:
    """Parse `NAME://host:port`, or nothing; ValueError if malformed."""
    return _parse_listener(text.strip()) if text.strip() else None


def parse_protocols(text: str) -> dict[str, str]:
    """Parse `LISTENER:PROTOCOL,...`; ValueError if malformed."""
    pairs = [item.split(":") for item in split_list(text)]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"{':'.join(pair)!r} is malformed: write LISTENER:PROTOCOL")
    return {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list, without blanks and empty items."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _parse_voter(text: str) -> Voter:
    match = _VOTER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is malformed: write id@host:port, for example 1@127.0.0.1:9093")
    host, port = _parse_address(match[2])
    if not host or port == 0:
        raise ValueError(f"{text!r} is malformed: a voter needs a host and a port above 0")
    return Voter(int(match[1]), host, port)


def _parse_server(text: str) -> Server:
    host, port = _parse_address(text)
    if not host or port == 0:
        raise ValueError(f"{text!r} is malformed: write host:port with a port above 0")
    return Server(host, port)


def _parse_listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is malformed: write NAME://host:port, for example PLAINTEXT://127.0.0.1:9092"
        )
    host, port = _parse_address(match[2])
    return Listener(match[1].upper(), host or DEFAULT_HOST, port)


def _parse_address(text: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`; the host may be empty."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is malformed: write an IPv6 host in brackets")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _PORT_LIMIT:
        raise ValueError(f"{text!r} is malformed: write host:port with a port of 0 to 65535")
    return host, int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
