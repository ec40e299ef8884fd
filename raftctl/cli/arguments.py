"""What several commands ask of their arguments; ConfigError names the argument and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ConfigError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

LONG_MAX = 2**63 - 1
_PORT_LIMIT = 65_536


def parse_addresses(text: str, option: str) -> list[str]:
    """The addresses of `host:port,...`, at least one."""
    addresses = [one for part in text.split(",") if (one := part.strip())]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) < _PORT_LIMIT):
            raise ConfigError(f"{option} {address}: write host:port, ports are 1 to 65535")
    if not addresses:
        raise ConfigError(f"{option}: name at least one host:port")
    return addresses


def bootstrap_servers(text: str) -> str:
    """`--bootstrap-server` as it is: clients would look for what is no address until they time
    out.
    """
    parse_addresses(text, "--bootstrap-server")
    return text


def not_empty(argument: str) -> Callable[[str], str]:
    """Lets a name pass as it is."""

    def check(text: str) -> str:
        if not text:
            raise ConfigError(f"{argument} is empty: write a name")
        return text

    return check


def none_empty(argument: str) -> Callable[[list[str] | None], list[str] | None]:
    """Lets names pass as they are; there may be none."""

    def check(texts: list[str] | None) -> list[str] | None:
        for text in texts or ():
            not_empty(argument)(text)
        return texts

    return check


def check_known(option: str, text: str, known: Collection[str]) -> None:
    """Whether it is one of those that are known, however written: an answer would just be empty."""
    if spelt(text) not in map(spelt, known):
        raise ConfigError(f"{option} {text}: there is none such; write one of {', '.join(known)}")


def why_without_key(code: ErrorCode, topic: str, option: str) -> str:
    """What to add to the refusal of a record that has no key; clients are told the code alone."""
    if code != ErrorCode.INVALID_RECORD:
        return ""
    return f"; if {topic} is compacted (cleanup.policy), each record needs a key: give {option}"


def spelt(name: str) -> str:
    """The name of a state, of which clients and tools use different letters."""
    return name.lower().replace("_", "").replace("-", "")
