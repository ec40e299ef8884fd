"""Groups of KIP-848 while their coordinators and members are broken (row G4).

The members speak the protocol themselves, heartbeat by heartbeat, and do not read: they commit the
next offset of what they own. Besides the promises of `group_scenarios` there is a stronger one:
what a member was told it owns is its own until it has said that it let go of it, or gave itself up
before its session was over. That does not hold of the classic protocol, nor where it takes part.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode
from tests.simulation.chaos_clients import TOPIC
from tests.simulation.group_scenarios import GROUP, GroupRig, Journal, go_wrong
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from jepsen.simulator.world import SimRuntime, World

INTERVAL_S = 0.3
TIMEOUT_S = 0.5
GIVES_UP_S = 1.0
"""Well before the session of two seconds is over, whenever the coordinator heard of it last."""
HEARTBEAT = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
COMMIT = (ApiKey.OFFSET_COMMIT, 9)
FETCH = (ApiKey.OFFSET_FETCH, 9)
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
)
ERRORS = (OSError, TimeoutError, EOFError)


class OwnerJournal(Journal):
    """Knows who owns what at each moment, too."""

    def own(self, name: str, member_id: str, generation: int, partitions: list[int]) -> None:
        """A member is given partitions."""
        for other, taken in self.assigned.items():
            both = sorted(set(taken) & set(partitions))
            if other != name and both:
                self.wrong.append(f"partition {both[0]} has two owners: {other} and {name}")
        super().own(name, member_id, generation, partitions)


class ProtocolMember:
    """One consumer, which comes again whenever it is fenced."""

    def __init__(self, name: str, bootstrap: Sequence[str], journal: Journal) -> None:
        self._name = name
        self._bootstrap = [one.rpartition(":") for one in bootstrap]
        self._journal = journal
        self._coordinator: Client | None = None
        self._epoch = 0
        self._owned: list[int] = []
        self._topic_id: UUID | None = None
        self._heard = 0.0
        self._turn = 0

    async def run(self, runtime: SimRuntime) -> None:
        """Reports and commits until it is killed."""
        loop = asyncio.get_running_loop()
        self._member_id = f"{self._name}-{runtime.uuid()}"
        while True:
            assert not self._journal.wrong, self._journal.wrong[0]
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._heartbeat(loop)
                async with asyncio.timeout(TIMEOUT_S):
                    await self._commit()
            except ERRORS:
                self._forget_coordinator()
            if loop.time() - self._heard >= GIVES_UP_S:
                self._give_up()
            await asyncio.sleep(INTERVAL_S if self._coordinator else 0.05)

    async def _heartbeat(self, loop: asyncio.AbstractEventLoop) -> None:
        client = self._coordinator or await self._find_coordinator()
        sent = loop.time()
        owned = [{"topic_id": self._topic_id, "partitions": self._owned}] if self._owned else []
        message = {
            "group_id": GROUP,
            "member_id": self._member_id,
            "member_epoch": self._epoch,
            "rebalance_timeout_ms": 1_500,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": owned,
        }
        response = await client.ask(*HEARTBEAT, message)
        if self._is_refused(response["error_code"]):
            return
        self._heard = sent
        self._epoch = response["member_epoch"]
        if response["assignment"] is not None:
            self._told(response["assignment"]["topic_partitions"])

    def _told(self, topics: list[dict[str, Any]]) -> None:
        """What is to go goes at once; what is new is its own from now on."""
        for topic in topics:
            self._topic_id = topic["topic_id"]
        self._owned = [number for topic in topics for number in topic["partitions"]]
        self._journal.own(self._name, self._member_id, self._epoch, self._owned)

    def _is_refused(self, error: int) -> bool:
        if error in FENCED:
            self._give_up()
        elif error:
            self._forget_coordinator()
        return bool(error)

    def _give_up(self) -> None:
        """Owns nothing any more, and joins again."""
        self._epoch, self._owned = 0, []
        self._journal.assigned.pop(self._name, None)

    def _forget_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.writer.close()
            self._coordinator = None

    async def _find_coordinator(self) -> Client:
        host, _, port = self._bootstrap[self._turn % len(self._bootstrap)]
        self._turn += 1
        first = Client(*await asyncio.open_connection(host, int(port)))
        try:
            question = {"key_type": 0, "coordinator_keys": [GROUP]}
            answer = await first.ask(ApiKey.FIND_COORDINATOR, 4, question)
        finally:
            first.writer.close()
        (found,) = answer["coordinators"]
        if found["error_code"]:
            raise ConnectionError(ErrorCode(found["error_code"]).name)
        client = Client(*await asyncio.open_connection(found["host"], found["port"]))
        self._coordinator = client
        return client

    async def _commit(self) -> None:
        client = self._coordinator
        if client is None or not self._owned:
            return
        known = {one: self._journal.committed.get(one, 0) for one in self._owned}
        topics = [{"name": TOPIC, "partition_indexes": self._owned}]
        who = {"member_id": self._member_id, "member_epoch": self._epoch}
        asked = {"groups": [{"group_id": GROUP, **who, "topics": topics}], "require_stable": True}
        (group,) = (await client.ask(*FETCH, asked))["groups"]
        if self._is_refused(group["error_code"]):
            return
        (topic,) = group["topics"]
        found = {
            one["partition_index"]: max(one["committed_offset"], 0) for one in topic["partitions"]
        }
        for number, offset in known.items():
            self._journal.check(number, offset, found[number])
        await self._commit_next(client, {n: offset + 1 for n, offset in found.items()})

    async def _commit_next(self, client: Client, offsets: dict[int, int]) -> None:
        partitions = [
            {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
            for number, offset in offsets.items()
        ]
        message = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": self._epoch,
            "member_id": self._member_id,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        answer = await client.ask(*COMMIT, message)
        told = answer["topics"][0]["partitions"]
        if not any(self._is_refused(one["error_code"]) for one in told):
            self._journal.acknowledge(offsets)


class ConsumerRig(GroupRig):
    """A cluster and the members of a group of KIP-848."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.journal = OwnerJournal()

    def start_member(self, name: str) -> None:
        """A member on a node of its own."""
        member = ProtocolMember(name, self.cluster.bootstrap, self.journal)
        self.world.start(name, member.run)

    def kill_member(self, name: str) -> None:
        """What it owned nobody owns any more."""
        super().kill_member(name)
        self.journal.assigned.pop(name, None)

    async def end(self) -> None:
        """Everything runs again: each partition has an owner, who commits."""
        await self.until(self.whole, "all replicas are in sync")
        await self.until(self.all_assigned, "all partitions have owners")
        before = dict(self.journal.committed)
        await self.until(
            lambda: all(self.journal.committed[one] > known for one, known in before.items()),
            "offsets are committed",
        )
        assert not self.journal.wrong, self.journal.wrong[0]


async def consumers_go_on(world: World) -> None:
    """Coordinators die, are cut off from the cluster or end; members die: again and again."""
    await go_wrong(ConsumerRig(world), ("kill", "isolate", "stop", "member"))


class QuietMember(ProtocolMember):
    """Commits what it finds committed: others read, and how far they have come stays."""

    async def _commit_next(self, client: Client, offsets: dict[int, int]) -> None:
        await super()._commit_next(client, {n: offset - 1 for n, offset in offsets.items()})


class MixedRig(GroupRig):
    """A group whose members begin each life with another protocol, as chance will have it."""

    def start_member(self, name: str) -> None:
        """A member on a node of its own."""
        if self.world.random.random() < 0.5:
            member = QuietMember(name, self.cluster.bootstrap, self.journal)
            self.world.start(name, member.run)
        else:
            super().start_member(name)

    async def break_one(self, kind: str) -> None:
        """With the coordinator goes a member, so that the next one is of either protocol."""
        self.kill_member(self.world.random.choice(self.members))
        await super().break_one(kind)

    def kill_member(self, name: str) -> None:
        """It ends without a word, unless it has already."""
        if self.world.node(name).process is not None:
            super().kill_member(name)
        self.journal.assigned.pop(name, None)

    async def end(self) -> None:
        """In the end all are of the classic protocol, and read all there is."""
        for name in self.members:
            self.kill_member(name)
            super().start_member(name)
        await super().end()


async def protocols_change(world: World) -> None:
    """Members of both protocols are in one group, which is upgraded and downgraded meanwhile."""
    await go_wrong(MixedRig(world), ("kill", "isolate", "stop", "member"))
