"""`raftctl kv`: keys and values on the metadata log (row Q10).

Status 1 also means that the key does not exist or is not as expected: nothing was changed. After
REQUEST_TIMED_OUT nobody knows whether a write was done, or will be; a get tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from raftctl.cli.controllers import TIMEOUT_S, ControllersOption, TimeoutOption, with_kv_client
from raftctl.cli.output import Output, OutputOption, show
from raftctl.cli.record_json import value_json
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.metadata.kv_requests import ANY_VERSION, NO_VERSION
from raftctl.metadata.requests import (
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvPutRequest,
)

if TYPE_CHECKING:
    from raftctl.metadata.requests import KvWriteResponse
    from raftctl.server.kv_client import KvWriteRequest

app = typer.Typer(help="Keys and values, linearizable, with fencing tokens.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY")]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE")]


@app.command()
def get(
    key: KeyArgument,
    controllers: ControllersOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Prints the value of a key, no older than any write that was answered before."""
    request = KvGetRequest(_utf8(key))
    timeout_ms = int(timeout * 1000)
    found = with_kv_client(controllers, timeout, lambda client: client.read(request, timeout_ms))
    if found.value is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"no key {key}")
    document = {"key": key, **value_json(found.value), "version": found.version}
    show(output, document, found.value.decode(errors="backslashreplace"))


@app.command()
def put(
    key: KeyArgument,
    value: ValueArgument,
    controllers: ControllersOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sets a key, whatever it was. The version it gets grows over all keys: a fencing token."""
    request = KvPutRequest(_utf8(key), _utf8(value).encode())
    _write(request, controllers, timeout, output)


@app.command()
def cas(
    key: KeyArgument,
    value: ValueArgument,
    controllers: ControllersOption,
    expect_version: Annotated[
        int | None, typer.Option(metavar="N", help="The version that the key must have.")
    ] = None,
    expect_value: Annotated[
        str | None, typer.Option(metavar="VALUE", help="The value that the key must have.")
    ] = None,
    expect_absent: Annotated[
        bool, typer.Option("--expect-absent", help="The key must not exist.")
    ] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sets a key if it is as expected: atomic compare-and-set."""
    if expect_absent and (expect_version, expect_value) != (None, None):
        raise ConfigError("--expect-absent goes with no other expectation")
    if not expect_absent and (expect_version, expect_value) == (None, None):
        raise ConfigError("give --expect-version, --expect-value or --expect-absent")
    version = NO_VERSION if expect_absent else ANY_VERSION
    if expect_version is not None:
        if expect_version < 0:
            raise ConfigError("--expect-version: a version is at least 0")
        version = expect_version
    expected = None if expect_value is None else _utf8(expect_value).encode()
    request = KvCasRequest(_utf8(key), _utf8(value).encode(), version, expected)
    _write(request, controllers, timeout, output)


@app.command()
def delete(
    key: KeyArgument,
    controllers: ControllersOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Removes a key, whatever its value is."""
    _write(KvDeleteRequest(_utf8(key)), controllers, timeout, output)


def _write(request: KvWriteRequest, controllers: str, timeout: float, output: Output) -> None:
    timeout_ms = int(timeout * 1000)
    answer = with_kv_client(controllers, timeout, lambda client: client.write(request, timeout_ms))
    if answer.error != ErrorCode.NONE:
        raise KafkaError(answer.error, _why(request.key, answer))
    show(output, {"key": request.key, "version": answer.version}, f"version {answer.version}")


def _why(key: str, answer: KvWriteResponse) -> str:
    found = "does not exist" if answer.version == NO_VERSION else f"has version {answer.version}"
    return f"{key} {found}; nothing was changed"


def _utf8(text: str) -> str:
    """The argument; ConfigError if the shell gave bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("keys and values on the command line are UTF-8") from None
    return text
