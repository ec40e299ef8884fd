"""`raftctl kv`: keys and values on the metadata log (row Q10).

Status 1 also means that the key does not exist or is not as expected: nothing was changed. After
REQUEST_TIMED_OUT nobody knows whether a write was done, or will be; a get tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from raftctl.cli._controllers import TIMEOUT_S, ControllersOption, TimeoutOption, with_kv_client
from raftctl.cli._output import Output, OutputOption, show
from raftctl.controller.kv import unguarded
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.json_values import value_fields
from raftctl.metadata.requests.cluster import KvGetRequest
from raftctl.metadata.requests.kv import ANY_VERSION, NO_TOKEN, NO_VERSION, KvGuardedWriteRequest

if TYPE_CHECKING:
    from raftctl.metadata.requests.cluster import KvWriteResponse


class _Guard(TypedDict):
    lock: str | None
    token: int


app = typer.Typer(help="Keys and values, linearizable, with fencing tokens.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY")]
LockOption = Annotated[
    str | None, typer.Option("--lock", metavar="LOCK", help="Only if this lock is held ...")
]
FenceOption = Annotated[
    int | None, typer.Option("--fence", metavar="TOKEN", min=0, help="... with this token.")
]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE")]


@app.command()
def get(
    key: KeyArgument,
    controllers: ControllersOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Prints the value of a key. It is no older than any write that was answered before."""
    request = KvGetRequest(utf8(key))
    timeout_ms = int(timeout * 1000)
    found = with_kv_client(controllers, timeout, lambda client: client.read(request, timeout_ms))
    if found.value is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"no key {key}")
    document = {"key": key, **value_fields(found.value), "version": found.version}
    show(output, document, found.value.decode(errors="backslashreplace"))


@app.command()
def put(
    key: KeyArgument,
    value: ValueArgument,
    controllers: ControllersOption,
    lock: LockOption = None,
    fence: FenceOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sets a key, whatever it was. The version it gets grows over all keys."""
    request = KvGuardedWriteRequest(utf8(key), utf8(value).encode(), **_guard(lock, fence))
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
    lock: LockOption = None,
    fence: FenceOption = None,
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
    expected = None if expect_value is None else utf8(expect_value).encode()
    guard = _guard(lock, fence)
    request = KvGuardedWriteRequest(utf8(key), utf8(value).encode(), version, expected, **guard)
    _write(request, controllers, timeout, output)


@app.command()
def delete(
    key: KeyArgument,
    controllers: ControllersOption,
    lock: LockOption = None,
    fence: FenceOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Removes a key, whatever its value is."""
    request = KvGuardedWriteRequest(utf8(key), None, **_guard(lock, fence))
    _write(request, controllers, timeout, output)


def _guard(lock: str | None, fence: int | None) -> _Guard:
    if (lock is None) != (fence is None):
        raise ConfigError("--lock and --fence go together")
    return {"lock": lock, "token": NO_TOKEN if fence is None else fence}


def _write(
    request: KvGuardedWriteRequest, controllers: str, timeout: float, output: Output
) -> None:
    asked = request if request.lock is not None else unguarded(request)
    timeout_ms = int(timeout * 1000)
    answer = with_kv_client(controllers, timeout, lambda client: client.write(asked, timeout_ms))
    if answer.error != ErrorCode.NONE:
        raise KafkaError(answer.error, _why(request, answer))
    show(output, {"key": request.key, "version": answer.version}, f"version {answer.version}")


def _why(request: KvGuardedWriteRequest, answer: KvWriteResponse) -> str:
    if answer.error is ErrorCode.FENCED_MEMBER_EPOCH:
        by = "nobody" if answer.version == NO_TOKEN else f"token {answer.version}"
        return f"{request.lock} is held by {by}, not {request.token}; nothing was changed"
    key = request.key
    found = "does not exist" if answer.version == NO_VERSION else f"has version {answer.version}"
    return f"{key} {found}; nothing was changed"


def utf8(text: str) -> str:
    """The argument; ConfigError if the shell gave bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("keys and values on the command line are UTF-8") from None
    return text
