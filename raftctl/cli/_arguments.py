"""What several commands ask of their arguments; ConfigError names the argument and the remedy."""

from __future__ import annotations

import difflib
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_PORT_LIMIT = 65_536
_UNKNOWN_CONFIG = re.compile(r"Unknown topic config name: (\S+)")
"""Apache Kafka's words."""
DEFAULT_DIRECTORY = "raftctl-cluster"
"""Where `raftctl up` makes a cluster, and where others look for one."""
COMPLETION_VARIABLE = "_RAFTCTL_COMPLETE"
"""Set by a shell that asks `raftctl` for completions instead of running a command."""
BOOTSTRAP_VARIABLE = "RAFTCTL_BOOTSTRAP_SERVER"
CONTROLLERS_VARIABLE = "RAFTCTL_CONTROLLERS"
ADDRESSES_DEFAULT = f"those of ./{DEFAULT_DIRECTORY}"
"""As help shows it."""


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
    check_addresses_given(text, "--bootstrap-server", BOOTSTRAP_VARIABLE)
    hosts = {one.rpartition(":")[0] for one in parse_addresses(text, "--bootstrap-server")}
    if not any(map(_is_known, hosts)):
        raise ConfigError(f"--bootstrap-server {text}: no such host: correct its name")
    return text


def _is_known(host: str) -> bool:
    """Whether the name has an address; else clients would try until they time out."""
    try:
        socket.getaddrinfo(host.strip("[]"), None)
    except (OSError, UnicodeError):
        return False
    return True


def controllers(text: str) -> str:
    """`--controllers` as it is."""
    check_addresses_given(text, "--controllers", CONTROLLERS_VARIABLE)
    parse_addresses(text, "--controllers")
    return text


def check_addresses_given(text: str, option: str, variable: str) -> None:
    """ConfigError if there are none, neither given nor by default."""
    if not text:
        raise ConfigError(
            f"{option}: name at least one host:port, or set {variable}, or be in the folder where "
            f"raftctl up has made {DEFAULT_DIRECTORY}"
        )


def local_brokers() -> str:
    """The brokers of the cluster that `raftctl up` made in the working folder; empty if none."""
    return _local_addresses("broker")


def local_controllers() -> str:
    """Its controllers."""
    return _local_addresses("controller")


def _local_addresses(role: str) -> str:
    """ConfigError if there is a cluster, but none of these nodes runs."""
    directory = Path(DEFAULT_DIRECTORY)
    # Who completes a line looks at no cluster.
    if COMPLETION_VARIABLE in os.environ or not (directory / "cluster.json").is_file():
        return ""
    from raftctl.localcluster.cluster import LocalCluster

    cluster = LocalCluster.load(directory)
    nodes = [node for node in cluster.layout.nodes if node.role == role]
    if not any(cluster.is_running(node) for node in nodes):
        raise ConfigError(
            f"no {role} of ./{DEFAULT_DIRECTORY} runs: raftctl up starts them; or name another "
            f"cluster's with {'--bootstrap-server' if role == 'broker' else '--controllers'}"
        )
    return ",".join(node.address for node in nodes)


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
    """Raise ConfigError for an unknown name, whatever its case and separators.

    Brokers answer an unknown name with an empty list, which reads like a result.
    """
    if spelt(text) not in map(spelt, known):
        raise ConfigError(f"{option} {text}: unknown value; choose one of {', '.join(known)}")


def parse_principal(option: str, text: str) -> tuple[str, str]:
    """Return type and name of a principal; ConfigError for what is none."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ConfigError(f"{option} {text}: write User:NAME")
    return kind, name


def with_near_miss(error: KafkaError) -> KafkaError:
    """The error, with the topic's config that was meant if an unknown one looks like it."""
    unknown = _UNKNOWN_CONFIG.search(error.message)
    if unknown is None:
        return error
    from raftctl.metadata.configs.topic import TOPIC_KEYS

    near = difflib.get_close_matches(unknown[1], TOPIC_KEYS, n=1, cutoff=0.75)
    return KafkaError(error.code, f"{error.message}; did you mean {near[0]}?") if near else error


def why_without_key(code: ErrorCode, topic: str, option: str) -> str:
    """The likely reason for a refused record without a key: the broker sends the code alone."""
    if code != ErrorCode.INVALID_RECORD:
        return ""
    return f"; if {topic} is compacted (cleanup.policy), each record needs a key: give {option}"


def spelt(name: str) -> str:
    """The name of a state, of which clients and tools use different letters."""
    return name.lower().replace("_", "").replace("-", "")
