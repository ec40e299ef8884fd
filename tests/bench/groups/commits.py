"""A process that commits offsets: `... BOOTSTRAP TOPIC COORDINATORS GROUPS WARM_S SECONDS`.

COORDINATORS is `one`, so that all groups have the same, or `all`, as they come. Each group has a
connection with one OffsetCommit under way, as consumers do. The client looks at no more of an
answer than is needed to know that it says the same as the first.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from broker.protocol.codec import decode_response, encode_request
from broker.protocol.versions import ApiKey
from tests.bench.groups.wire import (
    COMMIT_VERSION,
    NAME,
    Wire,
    check_commit,
    commit_message,
)

if TYPE_CHECKING:
    from tests.bench.groups.wire import Place

ASKED_FOR_EACH = 6
"""Ids asked for, for each group that is needed: a third or so has the same coordinator."""
_LENGTH_BYTES = 4
_BODY_AT = 8
"""After the length and the correlation id."""


class _Committer(asyncio.Protocol):
    """Commits again as soon as it has its answer."""

    def __init__(self, group: str, topic: str) -> None:
        message = commit_message(group, topic, 1)
        self._frame = encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 1, NAME, message)
        self._received = b""
        self._good = b""
        self.transport: asyncio.Transport
        self.done = 0
        self.broken: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        whole = _LENGTH_BYTES + int.from_bytes(self._received[:_LENGTH_BYTES], "big")
        if len(self._received) < max(whole, _BODY_AT):
            return
        if self._received[_BODY_AT:] != self._good:
            self._check()
        self._received = b""
        self.done += 1
        self.transport.write(self._frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.broken = self.broken or exc or ConnectionResetError("closed by the broker")

    def _check(self) -> None:
        payload = self._received[_LENGTH_BYTES:]
        try:
            check_commit(decode_response(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, payload)[1])
        except Exception as error:
            self.broken = error
            raise
        self._good = self._received[_BODY_AT:]


async def load(
    bootstrap: str, topic: str, coordinators: str, groups: int, warm_s: float, seconds: float
) -> dict[str, Any]:
    """Commits a second, after some seconds that count only in the number of all commits."""
    choose = _of_one_coordinator if coordinators == "one" else _of_all_coordinators
    places = await choose(bootstrap, topic, groups)
    committers = [_Committer(name, topic) for name in places]
    for committer, place in zip(committers, places.values(), strict=True):
        await _connect(committer, place)
    await asyncio.sleep(warm_s)
    before, began, counted = _done(committers), time.perf_counter(), 0
    while not counted:
        # However slow the machine is, one is counted.
        await asyncio.sleep(seconds)
        counted = _done(committers) - before
    elapsed = time.perf_counter() - began
    for committer in committers:
        committer.transport.abort()
    return {"commits_per_s": counted / elapsed, "commits": before + counted}


async def _connect(committer: _Committer, place: Place) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: committer, place.host, place.port)


def _done(committers: list[_Committer]) -> int:
    for committer in committers:
        if committer.broken is not None:
            raise committer.broken
    return sum(committer.done for committer in committers)


async def _of_all_coordinators(bootstrap: str, topic: str, count: int) -> dict[str, Place]:
    """So many groups and their brokers, which have taken a commit of each."""
    wire = Wire(bootstrap)
    places = {
        f"commits-{number}": await wire.commit(f"commits-{number}", topic, 1)
        for number in range(count)
    }
    wire.close()
    return places


async def _of_one_coordinator(bootstrap: str, topic: str, count: int) -> dict[str, Place]:
    """So many groups of the broker that has the most, which has taken a commit of each."""
    wire, names = Wire(bootstrap), [f"commits-{number}" for number in range(ASKED_FOR_EACH * count)]
    places = await wire.coordinators(names)
    ((place, _),) = Counter(places).most_common(1)
    chosen = [name for name, of in zip(names, places, strict=True) if of == place][:count]
    if len(chosen) < count:
        raise RuntimeError(f"of {len(names)} groups {len(chosen)} have the same coordinator")
    for name in chosen:
        await wire.commit(name, topic, 1)
    wire.close()
    return dict.fromkeys(chosen, place)


if __name__ == "__main__":
    bootstrap, topic, coordinators, groups, warm_s, seconds = sys.argv[1:]
    found = asyncio.run(
        load(bootstrap, topic, coordinators, int(groups), float(warm_s), float(seconds))
    )
    sys.stdout.write(json.dumps(found))
