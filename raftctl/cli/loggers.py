"""`raftctl loggers`: levels of controllers' loggers over HTTP (row O3).

Controllers do not speak Kafka's protocol, so that `kafka-configs --bootstrap-controller` does not
reach them. Levels of brokers are configs, as with Apache Kafka: `raftctl configs --entity-type
broker-loggers`. A broker's `http.listener` answers here too.
"""

from __future__ import annotations

import http.client
import json
from typing import Annotated, Any

import typer

from raftctl.cli._controllers import Controllers
from raftctl.cli._options import CommandGroup
from raftctl.errors import ConfigError, ErrorCode, KafkaError

app = CommandGroup("Shows and changes what controllers write to their logs.")

_PATH = "/api/v1/loggers"
_LIMIT_BYTES = 1 << 20


@app.command()
def describe(quorum: Controllers) -> None:
    """Shows the level of each logger at each of the controllers named."""
    rows = [
        {"node": answer["node_id"], "logger": name, "level": level}
        for address in quorum.addresses
        for answer in (_ask(quorum, address, "GET"),)
        for name, level in answer["loggers"].items()
    ]
    quorum.show_rows(("NODE", "LOGGER", "LEVEL"), rows)


@app.command()
def alter(
    quorum: Controllers,
    levels: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="LOGGER=LEVEL", help="Sets the level of a logger."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="LOGGER", help="Has a logger follow its parent."),
    ] = None,
) -> None:
    """Changes levels until the controllers are restarted.

    Levels are FATAL, ERROR, WARN, INFO, DEBUG and TRACE. `raftctl.quorum` follows `raftctl` where
    it has no level of its own, and that `root`.
    """
    pairs = dict(map(_pair, levels or ()))
    if not pairs and not unset:
        raise ConfigError("nothing to change: give --set LOGGER=LEVEL or --unset LOGGER")
    body = json.dumps({"set": pairs, "unset": unset or []})
    changed = [_ask(quorum, address, "PUT", body)["node_id"] for address in quorum.addresses]
    names = [*pairs, *(unset or ())]
    nodes = ", ".join(map(str, changed))
    document = {"nodes": changed, "loggers": names}
    quorum.show(document, f"altered {', '.join(names)} at node {nodes}")


def _ask(quorum: Controllers, address: str, method: str, body: str | None = None) -> dict[str, Any]:
    """What a controller answers; KafkaError if it does not, or refuses."""
    connection = quorum.security.connection(address, quorum.timeout)
    try:
        connection.request(method, _PATH, body, headers=dict(quorum.security.headers))
        response = connection.getresponse()
        document = json.loads(response.read(_LIMIT_BYTES))
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = f"no controller answers at {address}: {error}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, why) from None
    finally:
        connection.close()
    if response.status != http.client.OK or not isinstance(document, dict):
        refusal = document if isinstance(document, dict) else {}
        name, why = str(refusal.get("error")), str(refusal.get("message", response.reason))
        code = ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(code, f"{address}: {why}")
    return document


def _pair(text: str) -> tuple[str, str]:
    name, equals, level = text.partition("=")
    if not name or not equals:
        raise ConfigError(f"--set {text!r} sets nothing: write LOGGER=LEVEL")
    return name, level
