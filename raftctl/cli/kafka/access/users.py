"""`raftctl users`: SCRAM credentials, over the Kafka protocol (row C12; KIP-554)."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import none_empty, not_empty
from raftctl.cli._output import BootstrapOption, Output, OutputOption, say_progress, show, table
from raftctl.cli.kafka.admin import TIMEOUT_S, TimeoutOption, admin_client, wait_for
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

app = typer.Typer(help="Lists users; sets and removes passwords (SCRAM).", no_args_is_help=True)


class Mechanism(enum.StrEnum):
    """How a client shows that it knows the password (RFC 5802, RFC 7677)."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


UserArgument = Annotated[str, typer.Argument(metavar="USER", callback=not_empty("USER"))]
MechanismOption = Annotated[
    Mechanism, typer.Option(metavar="SCRAM-SHA-256|SCRAM-SHA-512", case_sensitive=False)
]
ITERATIONS, ITERATIONS_MIN, ITERATIONS_MAX = 8192, 4096, 16384
"""Apache Kafka's bounds."""


@app.command(name="list")
def list_users(
    bootstrap_server: BootstrapOption,
    user: Annotated[
        list[str] | None,
        typer.Option(help="Only this user; may be repeated.", callback=none_empty("--user")),
    ] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lists users with their mechanisms; keys and salts stay hidden."""
    client = admin_client(bootstrap_server)
    found = [
        {"user": one.user, "mechanism": _mechanism(info), "iterations": info.iterations}
        for one in _described(client, list(dict.fromkeys(user or ())), timeout)
        for info in one.scram_credential_infos
    ]
    rows = [list(one.values()) for one in found]
    empty = "no user has a password"
    show(output, found, table(("USER", "MECHANISM", "ITERATIONS"), rows, empty))


@app.command(name="set")
def set_password(
    user: UserArgument,
    bootstrap_server: BootstrapOption,
    mechanism: MechanismOption = Mechanism.SCRAM_SHA_512,
    iterations: Annotated[
        int,
        typer.Option(min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="How costly a guess shall be."),
    ] = ITERATIONS,
    password_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The password on its first line; `-`: stdin. Default: ask for it."
        ),
    ] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sets a user's password for one mechanism. The password itself is not sent."""
    from confluent_kafka.admin._scram import ScramCredentialInfo, UserScramCredentialUpsertion

    password = read_password(password_file)
    info = ScramCredentialInfo(_library_mechanism(mechanism), iterations)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    _alter(bootstrap_server, user, change, timeout)
    document = {"user": user, "mechanism": mechanism, "iterations": iterations}
    show(output, document, f"set the password of {user} for {mechanism}")
    say_progress("warning: passwords are kept, but no listener asks for them yet")


@app.command()
def delete(
    user: UserArgument,
    bootstrap_server: BootstrapOption,
    mechanism: MechanismOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Removes a user's password for one mechanism."""
    from confluent_kafka.admin._scram import UserScramCredentialDeletion

    change = UserScramCredentialDeletion(user, _library_mechanism(mechanism))
    _alter(bootstrap_server, user, change, timeout)
    document = {"deleted": user, "mechanism": mechanism}
    show(output, document, f"removed the password of {user} for {mechanism}")


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


def _described(client: AdminClient, users: list[str], timeout_s: float) -> Iterable[Any]:
    answer = client.describe_user_scram_credentials(users or None, request_timeout=timeout_s)
    if isinstance(answer, dict):
        return [wait_for(future, timeout_s) for future in answer.values()]
    found: dict[str, Any] = wait_for(answer, timeout_s)
    return [one for _, one in sorted(found.items())]


def _alter(bootstrap: str, user: str, change: Any, timeout_s: float) -> None:
    client = admin_client(bootstrap)
    futures = client.alter_user_scram_credentials([change], request_timeout=timeout_s)
    wait_for(futures[user], timeout_s)


def _library_mechanism(mechanism: Mechanism) -> Any:
    from confluent_kafka.admin._scram import ScramMechanism

    return ScramMechanism[mechanism.name]


def _mechanism(info: Any) -> str:
    return str(info.mechanism.name).replace("_", "-")
