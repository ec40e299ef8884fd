"""Glue of raftctl clusters: what local and simulated environments share.

`RaftctlKeyValues` adapts raftctl's client of keys and values to the seam of the harness.
`change_voters` adds and removes voters as an operator does. `assignment_of` translates a
partition of the metadata image into the terms of the checkers. `read_login` reads the file with
which clients log in to any cluster.

The package may import raftctl, and must not know whether nodes are processes or simulated.

Invariants: an error after a request was sent is reported as an unknown outcome, never as
failed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from jepsen.checkers.replication.metadata import Assignment
from jepsen.environments._base import Change, KeyValueError, KeyValues
from jepsen.environments._entrance import Login
from jepsen.errors import InputError
from raftctl.client import OutcomeUnknownError, connect
from raftctl.config import parse_client_properties
from raftctl.config.security import Jaas
from raftctl.controller_channel import CLIENT_ID
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.raft.messages import ChangeVotersResponse
from raftctl.rpc import RpcClient, RpcError
from raftctl.runtime.real import RealFileSystem
from raftctl.security.clients import librdkafka_settings, python_settings, token_source
from raftctl.security.sasl import SaslError, make_client

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from raftctl.client import Lock
    from raftctl.config.security import ClientSecurity
    from raftctl.metadata.image import TopicImage
    from raftctl.raft.messages import ChangeVotersRequest
    from raftctl.runtime.api import Runtime
    from raftctl.security.tls import TlsClient


class FileLogin(Login):
    """The login that a file of Apache Kafka's tools asks for."""

    def __init__(self, security: ClientSecurity) -> None:
        self._security = security
        self._files = RealFileSystem()

    @property
    def has_user(self) -> bool:
        return self._security.login is not None

    def librdkafka(self) -> AbstractContextManager[dict[str, Any]]:
        return librdkafka_settings(self._security, self._files)

    def aiokafka(self) -> dict[str, Any]:
        settings = python_settings(self._security, self._files)
        source = token_source(self._security, self._files)
        if source is not None:
            settings["sasl_oauth_token_provider"] = _token_provider(source)
        return settings

    def context(self) -> ssl.SSLContext | None:
        made: ssl.SSLContext | None = self.aiokafka().get("ssl_context")
        return made

    def exchange(self) -> tuple[str, Callable[[bytes], bytes | None]]:
        """Return the mechanism of SASL and what answers its challenges, the first an empty one.

        Only with a user. The answer is None at the end; ValueError for what a broker may not say.
        With OAUTHBEARER it blocks until it has a token; OSError or ValueError if there is none.
        """
        user = self._security.login
        assert user is not None, "somebody logs in"
        source = token_source(self._security, self._files)
        token = "" if source is None else source()
        module = user.settings.jaas or Jaas("")
        mechanism = make_client(user.mechanism, module, uuid4().hex, token)

        def respond(challenge: bytes) -> bytes | None:
            try:
                return mechanism.respond(challenge)
            except SaslError as error:
                raise ValueError(str(error)) from None

        return user.mechanism, respond


def _token_provider(source: Callable[[], str]) -> object:
    from aiokafka.abc import AbstractTokenProvider

    @AbstractTokenProvider.register
    class Tokens:
        async def token(self) -> str:
            """Get a token."""
            return await asyncio.to_thread(source)

        def extensions(self) -> dict[str, str]:
            """Return what else is sent with it."""
            return {}

    return Tokens()


def read_login(path: str) -> FileLogin:
    """Read the file of `--command-config`; InputError, without a secret, if it cannot be used."""
    try:
        login = FileLogin(parse_client_properties(Path(path).read_text(encoding="utf-8")))
        login.context()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"--command-config {path}: cannot be read ({reason})") from None
    except ConfigError as error:
        raise InputError(f"--command-config {path}: {error}") from None
    return login


@contextmanager
def _key_value_errors(*, reads: bool = False) -> Iterator[None]:
    """What the client raises, as what it means: only a lost answer to a write leaves doubt."""
    try:
        yield
    except OutcomeUnknownError as error:
        raise KeyValueError(str(error), certain=reads) from error
    except KafkaError as error:
        raise KeyValueError(f"{error.code.name}: {error.message}", certain=True) from error


class RaftctlKeyValues(KeyValues):
    """See `jepsen.environments._base.KeyValues`."""

    def __init__(self, controllers: Sequence[str], timeout_s: float, rng: random.Random) -> None:
        self._client = connect(controllers, timeout_s=timeout_s, rng=rng)
        self._lock: Lock | None = None

    async def open(self) -> None:
        await self._client.__aenter__()

    async def close(self) -> None:
        try:
            await self.release()
        finally:
            await self._client.__aexit__(None, None, None)

    async def read(self, key: str) -> bytes | None:
        with _key_value_errors(reads=True):
            entry = await self._client.get(key)
        return None if entry is None else entry.value

    async def write(self, key: str, value: bytes) -> int:
        with _key_value_errors():
            return await self._client.put(key, value)

    async def delete(self, key: str) -> int | None:
        with _key_value_errors():
            return await self._client.delete(key)

    async def cas(self, key: str, expected: bytes, value: bytes) -> bool:
        with _key_value_errors():
            return await self._client.cas(key, value, expected=expected) is not None

    async def keys(self, prefix: str) -> list[str]:
        with _key_value_errors(reads=True):
            return [one.key.removeprefix(prefix) async for one in self._client.list(prefix)]

    async def listed(self, prefix: str) -> tuple[int, list[Change]]:
        """See `KeyValues`; what is on one page is of one version."""
        with _key_value_errors(reads=True):
            page = await self._client.page(prefix)
        return page.offset, [Change(one.version, one.key, one.value) for one in page.entries]

    async def changes(self, prefix: str, start: int) -> AsyncGenerator[Change]:
        with _key_value_errors(reads=True):
            async with aclosing(self._client.watch(prefix=prefix, start=start)) as events:
                async for event in events:
                    yield Change(event.version, event.key, event.value)

    async def acquire(self, lock: str, session_timeout_s: float) -> int:
        await self.release()
        wanted = self._client.lock(lock, session_timeout_s=session_timeout_s)
        with _key_value_errors():
            await wanted.__aenter__()
        self._lock = wanted
        return wanted.token

    async def write_guarded(self, key: str, value: bytes, lock: str, token: int) -> None:
        """Write like a program that does not check if its lock is lost: see `KeyValues`."""
        believed = self._client.lock(lock)
        believed.token = token
        with _key_value_errors():
            await self._client.put(key, value, guard=believed)

    async def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            with _key_value_errors():
                await lock.__aexit__(None, None, None)


def assignment_of(topic: TopicImage, number: int) -> Assignment:
    """Return the assignment of the topic's partition of that number."""
    one = topic.partitions[number]
    return Assignment(
        partition=f"{topic.name}-{number}/{topic.topic_id}",
        replicas=one.replicas,
        isr=one.isr,
        leader=one.leader,
        leader_epoch=one.leader_epoch,
        partition_epoch=one.partition_epoch,
        eligible=one.elr,
    )


PATIENCE_S = 8.0
TIMEOUT_MS = 2_000
PAUSE_S = 0.1
DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
"""The last two: an earlier request, of which nobody heard, has been done."""


async def change_voters(
    runtime: Runtime,
    controllers: Sequence[tuple[str, int]],
    cluster_id: str,
    request: ChangeVotersRequest,
    tls: TlsClient | None = None,
) -> bool:
    """Ask one controller after the other, by host and port, until it is done.

    False if it was not in PATIENCE_S; then it may come about yet. `tls`: where they speak it.
    """
    clients = [
        RpcClient(runtime, host, port, cluster_id=cluster_id, node_id=CLIENT_ID, tls=tls)
        for host, port in controllers
    ]
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await _one_does(clients, request):
                    return True
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        return False
    finally:
        for client in clients:
            await client.close()


async def _one_does(clients: Sequence[RpcClient], request: ChangeVotersRequest) -> bool:
    for client in clients:
        try:
            response = await client.call(request, TIMEOUT_MS)
        except RpcError:
            continue
        if isinstance(response, ChangeVotersResponse) and response.error in DONE:
            return True
    return False
