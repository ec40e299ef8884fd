"""`raftctl kv`: keys, locks and elections on the metadata log (row Q10).

Reads are linearizable. Writes may be guarded by the version of the key or by the fencing token of
a lock; status 1 then also means that the key is not as expected and nothing was changed. A write
that ends in REQUEST_TIMED_OUT has an unknown outcome; a later `get` shows it.

`lock` and `elect` run a command while the lock is held and end with its exit status. If the lock
is lost, the command is stopped and the status is 1. Without a command they hold the lock until
they are interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

import typer

from raftctl.cli._controllers import (
    TIMEOUT_S,
    ControllersOption,
    TimeoutOption,
    ask,
    parse_controllers,
    with_kv_client,
)
from raftctl.cli._options import OutputOption
from raftctl.cli._output import Output, say, say_progress, show, table
from raftctl.cli._termination import terminate_as_interrupt
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.json_values import value_fields
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    NO_TOKEN,
    NO_VERSION,
    SESSION_TIMEOUT_MAX_MS,
    SESSION_TIMEOUT_MIN_MS,
    KvGetRequest,
    KvGuardedWriteRequest,
    unguarded,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from raftctl.client import Client, Entry, Event, Holder, Lock
    from raftctl.metadata.requests.kv import KvWriteResponse


class _Guard(TypedDict):
    lock: str | None
    token: int


app = typer.Typer(help="Keys and values, linearizable, with fencing tokens.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY")]
LockOption = Annotated[
    str | None,
    typer.Option("--lock", metavar="LOCK", help="Only while this lock is held; needs --fence."),
]
FenceOption = Annotated[
    int | None,
    typer.Option("--fence", metavar="TOKEN", min=0, help="The fencing token of its holder."),
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


T = TypeVar("T")

STOP_GRACE_S = 5.0
"""From SIGTERM to SIGKILL, for a command whose lock is lost."""
SESSION_TIMEOUT_S = 10.0

CommandArgument = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Runs while the lock is held.")
]
SessionOption = Annotated[
    float,
    typer.Option(
        "--session-timeout",
        help="Seconds after which a dead holder loses the lock.",
        min=SESSION_TIMEOUT_MIN_MS / 1000,
        max=SESSION_TIMEOUT_MAX_MS / 1000,
    ),
]
WaitOption = Annotated[
    float | None,
    typer.Option("--wait", help="Seconds to wait for the lock; default: no limit.", min=0),
]
CountOption = Annotated[
    int | None, typer.Option("--count", min=1, help="Number of lines after which it ends.")
]


@app.command(name="list")
def list_keys(
    controllers: ControllersOption,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Default: all keys.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Largest number of keys.")] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lists keys in order. They are no older than any write that was answered before."""
    wanted = utf8(prefix)
    entries, offset = _run(controllers, timeout, lambda client: _entries(client, wanted, limit))
    rows = [{"key": one.key, **value_fields(one.value), "version": one.version} for one in entries]
    cells = [(row["key"], row["version"], row.get("value", "(bytes)")) for row in rows]
    empty = f"no key begins with {prefix}" if prefix else "there are no keys"
    show(output, {"keys": rows, "offset": offset}, table(("KEY", "VERSION", "VALUE"), cells, empty))


async def _entries(client: Client, prefix: str, limit: int | None) -> tuple[list[Entry], int]:
    """The entries, and an offset after which a watch misses no change of them."""
    page = await client.page(prefix)
    offset, entries = page.offset, list(page.entries)
    while page.next is not None and (limit is None or len(entries) < limit):
        page = await client.page(prefix, after=page.next)
        entries += page.entries
    return entries[:limit], offset


@app.command()
def watch(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, or a prefix.")],
    controllers: ControllersOption,
    is_prefix: Annotated[
        bool, typer.Option("--prefix", help="Watches all keys that begin with KEY.")
    ] = False,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="Offset to begin at; default: from now on.")
    ] = None,
    count: CountOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Prints changes as they happen, a line each. Ctrl-C ends it.

    To go on after the last line without missing any: --from with its version + 1.
    """
    wanted = utf8(key)

    async def follow(client: Client) -> None:
        left = count
        events = client.watch(None if is_prefix else wanted, prefix=wanted, start=start)
        async for event in events:
            say(_event_line(event, output))
            left = None if left is None else left - 1
            if left == 0:
                return

    _run(controllers, timeout, follow)


def _event_line(event: Event, output: Output) -> str:
    if output is Output.JSON:
        kind = {"type": "delete" if event.value is None else "put", "key": event.key}
        value = {} if event.value is None else value_fields(event.value)
        return json.dumps({**kind, "version": event.version, **value})
    if event.value is None:
        return f"{event.version} delete {event.key}"
    return f"{event.version} put {event.key} {event.value.decode(errors='backslashreplace')}"


@app.command()
def lock(
    name: Annotated[str, typer.Argument(metavar="LOCK")],
    controllers: ControllersOption,
    command: CommandArgument = None,
    session_timeout: SessionOption = SESSION_TIMEOUT_S,
    wait: WaitOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Holds a lock, while a command runs if one is given. Who waits is served in order.

    The command finds RAFTCTL_LOCK and its fencing token RAFTCTL_LOCK_TOKEN in its environment, for
    `raftctl kv put --lock --fence`.
    """
    _hold(name, b"", controllers, command, session_timeout, wait, timeout, output)


@app.command()
def elect(
    name: Annotated[str, typer.Argument(metavar="ELECTION")],
    controllers: ControllersOption,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="Value that others see of this candidate.")
    ] = None,
    command: CommandArgument = None,
    listen: Annotated[
        bool, typer.Option("--listen", help="Prints the leader, and each one after it.")
    ] = False,
    count: CountOption = None,
    session_timeout: SessionOption = SESSION_TIMEOUT_S,
    wait: WaitOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stands for election and leads, or shows the leader.

    With a command, the candidate leads while the command runs.
    """
    if listen == (value is not None):
        raise ConfigError("give the VALUE of a candidate, or --listen")
    if value is not None:
        _hold(
            name, utf8(value).encode(), controllers, command, session_timeout, wait, timeout, output
        )
        return
    election = utf8(name)

    async def follow(client: Client) -> None:
        left = count
        async for holder in client.holders(election):
            say(_holder_line(holder, output))
            left = None if left is None else left - 1
            if left == 0:
                return

    _run(controllers, timeout, follow)


def _holder_line(holder: Holder | None, output: Output) -> str:
    if output is Output.JSON:
        document = {} if holder is None else {"token": holder.token, **value_fields(holder.value)}
        return json.dumps(document)
    if holder is None:
        return "nobody leads"
    return f"{holder.token} {holder.value.decode(errors='backslashreplace')}"


# --- holding --------------------------------------------------------------------------------------


def _hold(
    name: str,
    value: bytes,
    controllers: str,
    command: Sequence[str] | None,
    session_timeout: float,
    wait: float | None,
    timeout: float,
    output: Output,
) -> None:
    wanted = utf8(name)

    async def use(client: Client) -> int:
        made = client.lock(wanted, value=value, session_timeout_s=session_timeout)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(wait):
                    held = await stack.enter_async_context(made)
            except TimeoutError:
                why = f"{name} is not held after {wait:g} s of waiting"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from None
            if command:
                return await _run_command(held, command)
            show(output, {"lock": name, "token": held.token}, f"token {held.token}")
            await held.lost.wait()
            raise _lost(name)

    status = _run(controllers, timeout, use)
    if status:
        raise typer.Exit(status)


async def _run_command(held: Lock, command: Sequence[str]) -> int:
    """The exit status of the command, which is stopped should the lock be lost."""
    lock_variables = {"RAFTCTL_LOCK": held.name, "RAFTCTL_LOCK_TOKEN": str(held.token)}
    try:
        child = await asyncio.create_subprocess_exec(*command, env={**os.environ, **lock_variables})
    except OSError as error:
        raise ConfigError(f"{command[0]}: {error.strerror}") from None
    ended = asyncio.ensure_future(child.wait())
    lost = asyncio.ensure_future(held.lost.wait())
    try:
        await asyncio.wait((ended, lost), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            say_progress(f"{held.name} is lost: the command is stopped")
            raise _lost(held.name)
        return _exit_status(ended.result())
    finally:
        lost.cancel()
        await _stop(child, ended)


async def _stop(child: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    """Also when this command is interrupted: the lock is given back only after the command."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if ended.done():
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        await asyncio.wait([ended], timeout=STOP_GRACE_S)


def _exit_status(returned: int) -> int:
    """The status that a shell reports: 128 plus the signal for a command that a signal ended."""
    return returned if returned >= 0 else 128 - returned


def _lost(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{name} is lost: its session is over")


def _run(controllers: str, timeout_s: float, use: Callable[[Client], Awaitable[T]]) -> T:
    addresses = parse_controllers(controllers)
    # The client retries for ever, so a wrong address is found out here, before it begins.
    ask(controllers, timeout_s)

    async def main() -> Any:
        from raftctl.client import connect

        async with connect(addresses, timeout_s=timeout_s) as client:
            return await use(client)

    with terminate_as_interrupt():
        result: T = asyncio.run(main())
    return result
