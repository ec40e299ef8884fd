"""Keys and values by raftctl's own client, for environments whose clusters have them."""

from __future__ import annotations

from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from jepsen.environments._base import Change, KeyValueError
from raftctl.client import OutcomeUnknownError, connect
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from raftctl.client import Lock


@contextmanager
def _told(*, reads: bool = False) -> Iterator[None]:
    """What the client raises, as what it means: only a lost answer to a write leaves doubt."""
    try:
        yield
    except OutcomeUnknownError as error:
        raise KeyValueError(str(error), certain=reads) from error
    except KafkaError as error:
        raise KeyValueError(f"{error.code.name}: {error.message}", certain=True) from error


class RaftctlKeyValues:
    """See `jepsen.environments._base.KeyValues`."""

    def __init__(self, controllers: Sequence[str], timeout_s: float, rng: random.Random) -> None:
        self._client = connect(controllers, timeout_s=timeout_s, rng=rng)
        self._lock: Lock | None = None

    async def open(self) -> None:
        """See `KeyValues`."""
        await self._client.__aenter__()

    async def close(self) -> None:
        """See `KeyValues`."""
        try:
            await self.release()
        finally:
            await self._client.__aexit__(None, None, None)

    async def read(self, key: str) -> bytes | None:
        """See `KeyValues`."""
        with _told(reads=True):
            entry = await self._client.get(key)
        return None if entry is None else entry.value

    async def write(self, key: str, value: bytes) -> int:
        """See `KeyValues`."""
        with _told():
            return await self._client.put(key, value)

    async def delete(self, key: str) -> int | None:
        """See `KeyValues`."""
        with _told():
            return await self._client.delete(key)

    async def cas(self, key: str, expected: bytes, value: bytes) -> bool:
        """See `KeyValues`."""
        with _told():
            return await self._client.cas(key, value, expected=expected) is not None

    async def keys(self, prefix: str) -> list[str]:
        """See `KeyValues`."""
        with _told(reads=True):
            return [one.key.removeprefix(prefix) async for one in self._client.list(prefix)]

    async def listed(self, prefix: str) -> tuple[int, list[Change]]:
        """See `KeyValues`; what is on one page is of one version."""
        with _told(reads=True):
            page = await self._client.page(prefix)
        return page.offset, [Change(one.version, one.key, one.value) for one in page.entries]

    async def changes(self, prefix: str, start: int) -> AsyncGenerator[Change]:
        """See `KeyValues`."""
        with _told(reads=True):
            async with aclosing(self._client.watch(prefix=prefix, start=start)) as events:
                async for event in events:
                    yield Change(event.version, event.key, event.value)

    async def acquire(self, lock: str, session_timeout_s: float) -> int:
        """See `KeyValues`."""
        await self.release()
        wanted = self._client.lock(lock, session_timeout_s=session_timeout_s)
        with _told():
            await wanted.__aenter__()
        self._lock = wanted
        return wanted.token

    async def write_guarded(self, key: str, value: bytes, lock: str, token: int) -> None:
        """As a program does that does not look whether its lock is lost: see `KeyValues`."""
        believed = self._client.lock(lock)
        believed.token = token
        with _told():
            await self._client.put(key, value, guard=believed)

    async def release(self) -> None:
        """See `KeyValues`."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with _told():
                await lock.__aexit__(None, None, None)
