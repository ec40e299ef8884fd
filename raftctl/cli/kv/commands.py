"""`raftctl kv list`, `watch`, `lock` and `elect`: what goes through `raftctl.client` (row Q10).

`lock` and `elect` run a command while the lock is held, and end with its exit status; if the lock
is lost the command is stopped and the status is 1. Without a command they hold until interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from raftctl.cli._controllers import (
    TIMEOUT_S,
    ControllersOption,
    TimeoutOption,
    ask,
    parse_controllers,
)
from raftctl.cli._output import Output, OutputOption, say, say_progress, show, table
from raftctl.cli._termination import terminate_as_interrupt
from raftctl.cli.kv._keys import app, utf8
from raftctl.controller.kv import SESSION_TIMEOUT_MAX_MS, SESSION_TIMEOUT_MIN_MS
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.json_values import value_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from raftctl.client import Client, Entry, Event, Holder, Lock

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
    typer.Option("--wait", help="Seconds to wait for the lock; else for ever.", min=0),
]
CountOption = Annotated[
    int | None, typer.Option("--count", min=1, help="Ends after so many lines.")
]


@app.command(name="list")
def list_keys(
    controllers: ControllersOption,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Else all keys.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="So many keys at most.")] = None,
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
        int | None, typer.Option("--from", min=0, help="The offset to begin at; else from now on.")
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
        str | None, typer.Argument(metavar="VALUE", help="What others see of this candidate.")
    ] = None,
    command: CommandArgument = None,
    listen: Annotated[
        bool, typer.Option("--listen", help="Prints who leads, and who does after that.")
    ] = False,
    count: CountOption = None,
    session_timeout: SessionOption = SESSION_TIMEOUT_S,
    wait: WaitOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stands for election and leads, or tells who leads. It leads while a command runs, if one is
    given."""
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
        told = {} if holder is None else {"token": holder.token, **value_fields(holder.value)}
        return json.dumps(told)
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
    told = {"RAFTCTL_LOCK": held.name, "RAFTCTL_LOCK_TOKEN": str(held.token)}
    try:
        child = await asyncio.create_subprocess_exec(*command, env={**os.environ, **told})
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
    """As a shell tells it: 128 and the number of the signal for a command that one has ended."""
    return returned if returned >= 0 else 128 - returned


def _lost(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{name} is lost: its session is over")


def _run(controllers: str, timeout_s: float, use: Callable[[Client], Awaitable[T]]) -> T:
    addresses = parse_controllers(controllers)
    # A client asks again and again, whoever answers; where nobody does, the address is wrong.
    ask(controllers, timeout_s)

    async def main() -> Any:
        from raftctl.client import connect

        async with connect(addresses, timeout_s=timeout_s) as client:
            return await use(client)

    with terminate_as_interrupt():
        result: T = asyncio.run(main())
    return result
