"""`raftctl kv`: keys, locks and elections on the metadata log (row Q10).

Reads are linearizable. Writes may be guarded by the version of the key or by the fencing token of
a lock; status 1 then also means that the key is not as expected and nothing was changed. A write
that ends in REQUEST_TIMED_OUT has an unknown outcome; a later `get` shows it.

`rules`, `allow`, `deny` and `revoke` keep the rules of who may read and write which keys.

`lock` and `elect` run a command while the lock is held and end with its exit status. If the lock
is lost, the command is stopped and the status is 1. Without a command they hold the lock until
they are interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from raftctl.cli._controllers import Controllers
from raftctl.cli._options import CommandGroup
from raftctl.cli._output import Output, say, say_progress, table
from raftctl.cli._termination import terminate_as_interrupt
from raftctl.client import Expectation, Fence, RefusedError, connect
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.json_values import value_fields
from raftctl.metadata.requests.kv import (
    NO_TOKEN,
    NO_VERSION,
    SESSION_TIMEOUT_MAX_MS,
    SESSION_TIMEOUT_MIN_MS,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from raftctl.client import Client, Entry, Event, Holder, Lock

app = CommandGroup("Keys and values, linearizable, with fencing tokens.")

KeyArgument = Annotated[str, typer.Argument(metavar="KEY")]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE")]


@dataclass(frozen=True, kw_only=True)
class Write(Controllers):
    """A write that may be guarded by a lock."""

    lock: Annotated[
        str | None,
        typer.Option("--lock", metavar="LOCK", help="Only while this lock is held; needs --fence."),
    ] = None
    fence: Annotated[
        int | None,
        typer.Option("--fence", metavar="TOKEN", min=0, help="The fencing token of its holder."),
    ] = None

    def run(self, key: str, value: str | None, expectation: Expectation | None = None) -> None:
        """Writes the key and prints its version; KafkaError if nothing was changed."""
        if (self.lock is None) != (self.fence is None):
            raise ConfigError("--lock and --fence go together: give both or neither")
        guard = None if self.lock is None else Fence(utf8(self.lock), self.fence or 0)
        data = None if value is None else utf8(value).encode()
        wanted = utf8(key)
        try:
            version = _run(
                self, lambda client: client.write(wanted, data, expectation, guard=guard)
            )
        except RefusedError as error:
            raise KafkaError(error.code, self._reason(key, error)) from None
        self.show({"key": key, "version": version}, f"version {version}")

    def _reason(self, key: str, error: RefusedError) -> str:
        """Why nothing was changed, in the words of the command line."""
        match error.code:
            case ErrorCode.FENCED_MEMBER_EPOCH:
                by = "nobody" if error.version == NO_TOKEN else f"token {error.version}"
                return f"{self.lock} is held by {by}, not {self.fence}; nothing was changed"
            case ErrorCode.INVALID_UPDATE_VERSION | ErrorCode.RESOURCE_NOT_FOUND:
                is_absent = error.version == NO_VERSION
                found = "does not exist" if is_absent else f"has version {error.version}"
                return f"{key} {found}; nothing was changed"
        return error.message


@app.command()
def get(key: KeyArgument, quorum: Controllers) -> None:
    """Prints the value of a key. It is no older than any write that was answered before."""
    wanted = utf8(key)
    found = _run(quorum, lambda client: client.get(wanted))
    if found is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"no key {key}; raftctl kv list shows all")
    document = {"key": key, **value_fields(found.value), "version": found.version}
    quorum.show(document, found.value.decode(errors="backslashreplace"))


@app.command()
def put(key: KeyArgument, value: ValueArgument, write: Write) -> None:
    """Sets a key, whatever it was. The version it gets grows over all keys."""
    write.run(key, value)


@app.command()
def cas(
    key: KeyArgument,
    value: ValueArgument,
    write: Write,
    expect_version: Annotated[
        int | None, typer.Option(metavar="N", help="The version that the key must have.")
    ] = None,
    expect_value: Annotated[
        str | None, typer.Option(metavar="VALUE", help="The value that the key must have.")
    ] = None,
    expect_absent: Annotated[
        bool, typer.Option("--expect-absent", help="The key must not exist.")
    ] = False,
) -> None:
    """Sets a key if it is as expected: atomic compare-and-set."""
    if expect_absent and (expect_version, expect_value) != (None, None):
        raise ConfigError("--expect-absent goes with no other expectation: leave the others out")
    if not expect_absent and (expect_version, expect_value) == (None, None):
        raise ConfigError("give --expect-version, --expect-value or --expect-absent")
    if expect_version is not None and expect_version < 0:
        raise ConfigError(f"--expect-version {expect_version}: a version is at least 0")
    expected = None if expect_value is None else utf8(expect_value).encode()
    write.run(key, value, Expectation(expect_version, expected, expect_absent))


@app.command()
def delete(key: KeyArgument, write: Write) -> None:
    """Removes a key, whatever its value is."""
    write.run(key, None)


def utf8(text: str) -> str:
    """The argument; ConfigError if the shell gave bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("keys, values and names of locks must be UTF-8") from None
    return text


T = TypeVar("T")

STOP_GRACE_S = 5.0
"""From SIGTERM to SIGKILL, for a command whose lock is lost."""

CommandArgument = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Runs while the lock is held.")
]
CountOption = Annotated[
    int | None,
    typer.Option("--count", metavar="N", min=1, help="Number of lines after which it ends."),
]


@dataclass(frozen=True, kw_only=True)
class Holding(Controllers):
    """How a lock is waited for and held."""

    session_timeout: Annotated[
        float,
        typer.Option(
            "--session-timeout",
            metavar="SECONDS",
            help="Time after which a dead holder loses the lock.",
            min=SESSION_TIMEOUT_MIN_MS / 1000,
            max=SESSION_TIMEOUT_MAX_MS / 1000,
        ),
    ] = 10.0
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait", metavar="SECONDS", help="Longest wait for the lock; default: no limit.", min=0
        ),
    ] = None

    def run(self, name: str, value: bytes, command: Sequence[str] | None) -> None:
        """Holds the lock until the command ends or this one is interrupted."""
        wanted = utf8(name)

        async def use(client: Client) -> int:
            made = client.lock(wanted, value=value, session_timeout_s=self.session_timeout)
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(self.wait):
                        held = await stack.enter_async_context(made)
                except TimeoutError:
                    why = f"{name} is not held after {self.wait:g} s of waiting"
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from None
                if command:
                    return await _run_command(held, command)
                self.show({"lock": name, "token": held.token}, f"token {held.token}")
                await held.lost.wait()
                raise _lost(name)

        status = _run(self, use)
        if status:
            raise typer.Exit(status)


@app.command(name="list")
def list_keys(
    quorum: Controllers,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Default: all keys.")] = "",
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Largest number of keys.")
    ] = None,
) -> None:
    """Lists keys in order. They are no older than any write that was answered before."""
    wanted = utf8(prefix)
    entries, offset = _run(quorum, lambda client: _entries(client, wanted, limit))
    rows = [{"key": one.key, **value_fields(one.value), "version": one.version} for one in entries]
    cells = [(row["key"], row["version"], row.get("value", "(bytes)")) for row in rows]
    empty = f"no key begins with {prefix}" if prefix else "there are no keys"
    quorum.show({"keys": rows, "offset": offset}, table(("KEY", "VERSION", "VALUE"), cells, empty))


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
    quorum: Controllers,
    is_prefix: Annotated[
        bool, typer.Option("--prefix", help="Watches all keys that begin with KEY.")
    ] = False,
    start: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="OFFSET", min=0, help="Offset to begin at; default: the end."
        ),
    ] = None,
    count: CountOption = None,
) -> None:
    """Prints changes as they happen, a line each. Ctrl-C ends it.

    To go on after the last line without missing any: --from with its version + 1.
    """
    wanted = utf8(key)
    watched = None if is_prefix else wanted
    _follow(
        quorum, count, lambda client: client.watch(watched, prefix=wanted, start=start), _event_line
    )


def _follow(
    quorum: Controllers,
    count: int | None,
    events: Callable[[Client], AsyncIterator[T]],
    line: Callable[[T, Output], str],
) -> None:
    """Prints a line for each event, `count` of them or for ever."""

    async def follow(client: Client) -> None:
        left = count
        async for event in events(client):
            say(line(event, quorum.output))
            left = None if left is None else left - 1
            if left == 0:
                return

    _run(quorum, follow)


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
    holding: Holding,
    command: CommandArgument = None,
) -> None:
    """Holds a lock, while a command runs if one is given. Waiting clients are served in order.

    The command finds RAFTCTL_LOCK and its fencing token RAFTCTL_LOCK_TOKEN in its environment, for
    `raftctl kv put --lock --fence`.
    """
    holding.run(name, b"", command)


@app.command()
def elect(
    name: Annotated[str, typer.Argument(metavar="ELECTION")],
    holding: Holding,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="Value that others see of this candidate.")
    ] = None,
    command: CommandArgument = None,
    listen: Annotated[
        bool, typer.Option("--listen", help="Prints the leader, and each one after it.")
    ] = False,
    count: CountOption = None,
) -> None:
    """Stands for election and leads, or shows the leader.

    With a command, the candidate leads while the command runs.
    """
    if listen == (value is not None):
        raise ConfigError("give the VALUE of a candidate, or --listen")
    if value is not None:
        holding.run(name, utf8(value).encode(), command)
        return
    election = utf8(name)
    _follow(holding, count, lambda client: client.holders(election), _holder_line)


def _holder_line(holder: Holder | None, output: Output) -> str:
    if output is Output.JSON:
        document = {} if holder is None else {"token": holder.token, **value_fields(holder.value)}
        return json.dumps(document)
    if holder is None:
        return "nobody leads"
    return f"{holder.token} {holder.value.decode(errors='backslashreplace')}"


# --- rules ----------------------------------------------------------------------------------------


class KeyOperation(enum.StrEnum):
    """What a rule on keys is about, named as Apache Kafka's tools name operations."""

    READ = "Read"
    WRITE = "Write"
    ALL = "All"


@dataclass(frozen=True, kw_only=True)
class Rules(Controllers):
    """Rules on keys: those that options name."""

    key: Annotated[str | None, typer.Option(metavar="KEY", help="A key; `*`: all.")] = None
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="All keys that begin with it.")
    ] = None
    principal: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="The principal; `User:*`: everybody.")
    ] = None
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only from there.")] = None
    operation: Annotated[
        KeyOperation | None, typer.Option(case_sensitive=False, help="What the rule is about.")
    ] = None

    def fields(self, **more: str) -> dict[str, str]:
        """Those that are given, as the HTTP API names them."""
        given = {
            "key": self.key,
            "prefix": self.prefix,
            "principal": self.principal,
            "host": self.host,
            "operation": None if self.operation is None else self.operation.upper(),
        }
        return {name: utf8(text) for name, text in given.items() if text is not None} | more

    def show_rules(self, rules: Iterable[Mapping[str, Any]]) -> None:
        """Prints them."""
        found = list(rules)
        rows = [
            (
                *(one[name] for name in ("principal", "host", "permission", "operation")),
                one.get("key", f"{one.get('prefix')}..."),
            )
            for one in found
        ]
        columns = ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "KEY")
        self.show({"rules": found}, table(columns, rows, "no such rule"))


@app.command(name="rules")
def list_rules(rules: Rules) -> None:
    """Lists the rules on keys, all of them if nothing is named."""
    rules.show_rules(_run(rules, lambda client: client.rules(rules.fields())))


@app.command()
def allow(rules: Rules) -> None:
    """Adds a rule that allows a principal to use keys and locks."""
    added = _run(rules, lambda client: client.add_rule(rules.fields(permission="ALLOW")))
    rules.show_rules([added])


@app.command()
def deny(rules: Rules) -> None:
    """Adds a rule that denies it, whatever other rules allow."""
    added = _run(rules, lambda client: client.add_rule(rules.fields(permission="DENY")))
    rules.show_rules([added])


@app.command()
def revoke(rules: Rules) -> None:
    """Removes the rules that match, and shows them.

    What is not named is any.
    """
    rules.show_rules(_run(rules, lambda client: client.remove_rules(rules.fields())))


# --- holding --------------------------------------------------------------------------------------


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


def _run(quorum: Controllers, use: Callable[[Client], Awaitable[T]]) -> T:
    # The client retries for ever, so a wrong address is found out here, before it begins.
    quorum.find()

    async def main() -> T:
        security = quorum.security
        async with connect(
            quorum.addresses,
            timeout_s=quorum.timeout,
            tls=security.tls,
            login=security.login,
            token=security.token,
        ) as client:
            return await use(client)

    with terminate_as_interrupt():
        return asyncio.run(main())
