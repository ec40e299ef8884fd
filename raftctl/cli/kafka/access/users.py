"""`raftctl users`: SCRAM credentials, over the Kafka protocol (row C12; KIP-554)."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import none_empty, not_empty
from raftctl.cli._options import CommandGroup
from raftctl.cli.kafka.admin import Cluster
from raftctl.errors import ConfigError
from raftctl.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable


app = CommandGroup("Lists users; sets and removes passwords (SCRAM).")


class Mechanism(enum.StrEnum):
    """How a client shows that it knows the password (RFC 5802, RFC 7677)."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


UserArgument = Annotated[str, typer.Argument(metavar="USER", callback=not_empty("USER"))]
MechanismOption = Annotated[
    Mechanism, typer.Option(metavar="SCRAM-SHA-256|SCRAM-SHA-512", case_sensitive=False)
]
ITERATIONS = 8192


@app.command(name="list")
def list_users(
    cluster: Cluster,
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER", help="Only this user; may be repeated.", callback=none_empty("--user")
        ),
    ] = None,
) -> None:
    """Lists users with their mechanisms; keys and salts stay hidden."""
    found = [
        {"user": one.user, "mechanism": _mechanism(info), "iterations": info.iterations}
        for one in _described(cluster, list(dict.fromkeys(user or ())))
        for info in one.scram_credential_infos
    ]
    empty = "no user has a password"
    cluster.show_rows(("USER", "MECHANISM", "ITERATIONS"), found, empty)


@app.command(name="set")
def set_password(
    user: UserArgument,
    cluster: Cluster,
    mechanism: MechanismOption = Mechanism.SCRAM_SHA_512,
    iterations: Annotated[
        int,
        typer.Option(
            min=ITERATIONS_MIN,
            max=ITERATIONS_MAX,
            metavar="N",
            help="Rounds of hashing: the more, the costlier a guess.",
        ),
    ] = ITERATIONS,
    password_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The password on its first line; `-`: stdin. Default: ask for it."
        ),
    ] = None,
) -> None:
    """Sets a user's password for one mechanism. The password itself is not sent."""
    from confluent_kafka.admin._scram import ScramCredentialInfo, UserScramCredentialUpsertion

    password = read_password(password_file)
    info = ScramCredentialInfo(_library_mechanism(mechanism), iterations)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    _alter(cluster, user, change)
    document = {"user": user, "mechanism": mechanism, "iterations": iterations}
    cluster.show(document, f"set the password of {user} for {mechanism}")


@app.command()
def delete(
    user: UserArgument,
    cluster: Cluster,
    mechanism: MechanismOption,
) -> None:
    """Removes a user's password for one mechanism."""
    from confluent_kafka.admin._scram import UserScramCredentialDeletion

    change = UserScramCredentialDeletion(user, _library_mechanism(mechanism))
    _alter(cluster, user, change)
    document = {"deleted": user, "mechanism": mechanism}
    cluster.show(document, f"removed the password of {user} for {mechanism}")


def read_password(password_file: str | None) -> str:
    """From the file, or asked for on a terminal: on the command line others would see it."""
    if password_file is None:
        if not sys.stdin.isatty():
            raise ConfigError("--password-file FILE is needed where nobody can be asked")
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        return asked
    try:
        whole = password_file == "-"
        text = sys.stdin.read() if whole else Path(password_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--password-file {password_file}: cannot be read: {reason}") from None
    password = text.partition("\n")[0].rstrip("\r")
    if not password:
        raise ConfigError(f"--password-file {password_file}: its first line is empty")
    return password


def _described(cluster: Cluster, users: list[str]) -> Iterable[Any]:
    answer = cluster.client.describe_user_scram_credentials(
        users or None, request_timeout=cluster.timeout
    )
    if isinstance(answer, dict):
        return [cluster.wait(future) for future in answer.values()]
    found: dict[str, Any] = cluster.wait(answer)
    return [one for _, one in sorted(found.items())]


def _alter(cluster: Cluster, user: str, change: Any) -> None:
    futures = cluster.client.alter_user_scram_credentials([change], request_timeout=cluster.timeout)
    cluster.wait(futures[user])


def _library_mechanism(mechanism: Mechanism) -> Any:
    from confluent_kafka.admin._scram import ScramMechanism

    return ScramMechanism[mechanism.name]


def _mechanism(info: Any) -> str:
    return str(info.mechanism.name).replace("_", "-")
