"""`raftctl tokens`: delegation tokens, over the Kafka protocol (row S3; KIP-48, KIP-373).

An HMAC is a password. It comes from a file or stdin, since others see command lines, and `list`
shows none.
"""

from __future__ import annotations

import base64
import binascii
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import parse_principal
from raftctl.cli._options import CommandGroup
from raftctl.cli.kafka.admin import Cluster, message_class, send
from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

app = CommandGroup("Creates, renews, expires and lists delegation tokens.")

_PACKAGE = "raftctl.cli.kafka.access"
_DEFAULT = -1
"""A period that the cluster decides on; of an expiry, at once."""
HmacOption = Annotated[
    str,
    typer.Option(
        "--hmac-file", metavar="FILE", help="The HMAC of the token on its first line; `-`: stdin."
    ),
]
Names = list[str] | None


@app.command()
def create(
    cluster: Cluster,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner-principal",
            metavar="User:NAME",
            help="For whom a client with the token acts. Default: who logs in.",
        ),
    ] = None,
    renewer: Annotated[
        Names,
        typer.Option(
            "--renewer-principal",
            metavar="User:NAME",
            help="Who may renew it besides the owner; may be repeated.",
        ),
    ] = None,
    max_life_time_period: Annotated[
        int, typer.Option(metavar="MS", help="Its longest lifetime; -1: what the cluster allows.")
    ] = _DEFAULT,
) -> None:
    """Creates a token and shows its HMAC, the password to log in with. Keep it secret."""
    kind, name = (None, None) if owner is None else parse_principal("--owner-principal", owner)
    renewers = [parse_principal("--renewer-principal", one) for one in renewer or ()]
    made = _send(
        cluster,
        "CreateDelegationToken",
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=renewers,
        max_lifetime_ms=max_life_time_period,
    )
    document = {
        "token_id": made["token_id"],
        "hmac": base64.b64encode(made["hmac"]).decode(),
        "owner": f"{made['principal_type']}:{made['principal_name']}",
        "expires": _time(made["expiry_timestamp_ms"]),
        "ends": _time(made["max_timestamp_ms"]),
    }
    text = "".join(f"{name:<8}  {value}\n" for name, value in document.items())
    cluster.show(document, text)


@app.command()
def renew(
    cluster: Cluster,
    hmac_file: HmacOption,
    renew_time_period: Annotated[
        int, typer.Option(metavar="MS", help="From now on; -1: what the cluster allows.")
    ] = _DEFAULT,
) -> None:
    """Has a token expire later, but not after its longest lifetime."""
    hmac = read_hmac(hmac_file)
    period = {"renew_period_ms": renew_time_period}
    renewed = _send(cluster, "RenewDelegationToken", hmac=hmac, **period)
    when = _time(renewed["expiry_timestamp_ms"])
    cluster.show({"expires": when}, f"the token expires at {when}")


@app.command()
def expire(
    cluster: Cluster,
    hmac_file: HmacOption,
    expiry_time_period: Annotated[
        int, typer.Option(metavar="MS", help="From now on; below 0: at once.")
    ] = _DEFAULT,
) -> None:
    """Has a token expire at another time. One that expires at once is removed."""
    hmac = read_hmac(hmac_file)
    period = {"expiry_time_period_ms": expiry_time_period}
    expired = _send(cluster, "ExpireDelegationToken", hmac=hmac, **period)
    when = _time(expired["expiry_timestamp_ms"])
    if expiry_time_period < 0:
        cluster.show({"removed": True, "expires": when}, "removed the token")
    else:
        cluster.show({"removed": False, "expires": when}, f"the token expires at {when}")


@app.command(name="list")
def list_tokens(
    cluster: Cluster,
    owner: Annotated[
        Names,
        typer.Option(
            "--owner-principal",
            metavar="User:NAME",
            help="Only tokens of this owner, renewer or requester; may be repeated.",
        ),
    ] = None,
) -> None:
    """Lists the tokens that the user may see; their HMACs stay hidden."""
    owners = [parse_principal("--owner-principal", one) for one in owner or ()] or None
    answer = _send(cluster, "DescribeDelegationToken", owners=owners)
    found = sorted(map(_listed, answer["tokens"]), key=lambda one: (one["owner"], one["token_id"]))
    columns = ("TOKEN", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "ENDS")
    cluster.show_rows(columns, found, "no such token")


def _listed(token: Mapping[str, Any]) -> dict[str, Any]:
    renewers = token["renewers"]
    return {
        "token_id": token["token_id"],
        "owner": f"{token['principal_type']}:{token['principal_name']}",
        "requester": (
            f"{token['token_requester_principal_type']}:{token['token_requester_principal_name']}"
        ),
        "renewers": [f"{one['principal_type']}:{one['principal_name']}" for one in renewers],
        "issued": _time(token["issue_timestamp"]),
        "expires": _time(token["expiry_timestamp"]),
        "ends": _time(token["max_timestamp"]),
    }


def read_hmac(path: str) -> bytes:
    """Return the HMAC of a file, which has it in Base64; ConfigError if it has not."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(f"--hmac-file {path}: cannot be read: {reason}") from None
    try:
        hmac = base64.b64decode(text.partition("\n")[0].strip(), validate=True)
    except (binascii.Error, ValueError):
        hmac = b""
    if not hmac:
        raise ConfigError(f"--hmac-file {path}: its first line is no HMAC in Base64")
    return hmac


def _send(cluster: Cluster, name: str, **fields: Any) -> dict[str, Any]:
    """Return the answer to a request that kafka-python does not know; KafkaError if it fails."""
    request = message_class(f"{name}Request", _PACKAGE)
    # Held until the answer is there: kafka-python finds the class by a weak reference.
    _response = message_class(f"{name}Response", _PACKAGE)
    with cluster.open() as client:
        answer = send(client, request(**fields), has_bytes=True)
    code = ErrorCode(answer["error_code"])
    if code:
        raise KafkaError(code)
    return answer


def _time(at_ms: int) -> str:
    """Return a time as people read it, in UTC and to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
