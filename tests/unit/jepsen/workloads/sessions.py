"""A session whose answers a test decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.workloads.sessions import Batch, SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jepsen.workloads.sessions._base import GroupMembership


class ScriptedSession:
    """See `LogSession`: acknowledges everything, but for the calls that are to fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing: dict[str, bool] = {}
        """Call to whether its failure is certain."""
        self.batches: list[Batch] = []
        """What the next polls return."""
        self.members: list[GroupMembership | None] = []
        """What is told after the next polls; the last one stays."""
        self.end: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self._member: GroupMembership | None = None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise SessionError(f"{name} went wrong", certain=self.failing[name])

    async def close(self) -> None:
        self._call("close")

    async def renew_producer(self) -> None:
        self._call("renew_producer")

    async def begin(self) -> None:
        self._call("begin")

    async def send(self, key: str, value: bytes) -> int:
        self._call("send")
        return 0

    async def commit(self) -> None:
        self._call("commit")

    async def abort(self) -> None:
        self._call("abort")

    async def assign(self, positions: Mapping[str, int]) -> None:
        self._call("assign")
        self.read = dict(positions)

    async def subscribe(self) -> None:
        self._call("subscribe")

    async def leave(self) -> None:
        self._call("leave")
        self._member = None

    async def poll(self) -> Batch:
        self._call("poll")
        if self.members:
            self._member = self.members.pop(0)
        found = self.batches.pop(0) if self.batches else {}
        self.read |= {key: pairs[-1][0] + 1 for key, pairs in found.items()}
        return found

    async def positions(self, keys: Sequence[str]) -> dict[str, int]:
        return {key: self.read[key] for key in keys}

    def membership(self) -> GroupMembership | None:
        return self._member

    async def ends(self, keys: Sequence[str], *, committed_only: bool) -> dict[str, int]:
        self._call("ends")
        return {key: self.end.get(key, 0) for key in keys}

    async def commit_offsets(self, offsets: Mapping[str, int]) -> None:
        self._call("commit_offsets")
        self.kept |= offsets

    async def committed(self, keys: Sequence[str]) -> dict[str, int | None]:
        self._call("committed")
        return {key: self.kept.get(key) for key in keys}
