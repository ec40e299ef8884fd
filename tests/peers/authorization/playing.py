"""Fills the cells of one system: users that log in, rules, and the requests.

Each cell has a user of its own, so that no rule for one cell is a rule for another, and names of
its own. What the cells of a wave need is made by the super user before, all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker.protocol.codec import decode_response
from broker.protocol.versions import ApiKey
from raftctl.metadata.acls import Operation, Permission, ResourceType
from tests.peers.authorization.cases import SUPER
from tests.peers.authorization.cells import PROBE, Cell, rule, rules
from tests.peers.authorization.rows import SHARED
from tests.peers.authorization.verdicts import is_refusal, verdict
from tests.peers.differential.answers import Symbols, normal
from tests.peers.differential.language import filled, resolved
from tests.peers.differential.playing import Connection, System, at

if TYPE_CHECKING:
    from tests.peers.authorization.rows import Prepared

AT_ONCE = 32
RULES_AT_ONCE = 500
TOPICS_AT_ONCE = 100
ANSWER_S = 30.0
IN_FORCE_S = 120.0
SHARED_NAME = "shared"
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Found:
    """What a cell came to."""

    verdict: str
    answer: Any
    """In normal form, if the request was refused: what it shows is compared, too."""


class Client:
    """A connection of a user, logged in with SASL PLAIN."""

    def __init__(self, system: System, user: str) -> None:
        self._connection = Connection(system)
        self._user = user

    async def __aenter__(self) -> Client:
        await self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        login = f"\0{self._user}\0{self._user}-secret".encode()
        answer = await self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": login})
        assert answer["error_code"] == 0, f"{self._user} cannot log in: {answer}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._connection.close()

    async def ask(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's body."""
        _, answer = await self._connection.send(api, version, filled(api, version, body))
        payload = await asyncio.wait_for(answer, ANSWER_S)
        return decode_response(api, version, payload)[1]


@dataclass
class Player:
    """Fills cells on one system."""

    system: System
    admin: Client
    ids: dict[str, Any] = field(default_factory=dict)
    """Of topics, by their names."""
    kept: dict[Cell, dict[str, Any]] = field(default_factory=dict)
    """What was kept of what was prepared, by name."""
    probes: int = 0

    async def play(self, table: Sequence[Cell]) -> dict[Cell, Found]:
        """The cells of all waves."""
        found: dict[Cell, Found] = {}
        for wave in sorted({cell.case.wave for cell in table}):
            some = [cell for cell in table if cell.case.wave == wave]
            await self._prepare(some)
            await self._rule([rule for cell in some for rule in rules(cell, self._kept(cell))])
            turns = asyncio.Semaphore(AT_ONCE)
            answers = await asyncio.gather(*(self._fill(cell, turns) for cell in some))
            found |= dict(zip(some, answers, strict=True))
            await self._forget_rules()
        return found

    async def _prepare(self, some: Sequence[Cell]) -> None:
        names = [resolved(name, cell.prefix, {}) for cell in some for name in cell.row.topics]
        if not self.ids:
            names.append(SHARED_NAME)
        for start in range(0, len(names), TOPICS_AT_ONCE):
            new = [
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in names[start : start + TOPICS_AT_ONCE]
            ]
            body = {"topics": new, "timeout_ms": 20_000}
            answer = await self.admin.ask(ApiKey.CREATE_TOPICS, 7, body)
            self.ids |= {one["name"]: one["topic_id"] for one in answer["topics"]}
        await self._await_leaders(names)
        for cell in some:
            for one in cell.row.prepared:
                answer = await self._prepared(one, self._resolved(cell, one.body))
                kept = {name: at(answer, path) for name, path in one.keep.items()}
                self.kept.setdefault(cell, {}).update(kept)

    async def _prepared(self, one: Prepared, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer once it is one without errors: coordinators load their partitions first."""
        async with asyncio.timeout(IN_FORCE_S):
            while True:
                answer = await self.admin.ask(one.api, one.version, body)
                if not any(_errors(answer)) and one.ready(answer):
                    return answer
                await asyncio.sleep(POLL_S)

    async def _await_leaders(self, names: Sequence[str]) -> None:
        """Until the broker leads all of them."""
        partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
        topics = [{"name": name, "partitions": partitions} for name in names]
        async with asyncio.timeout(IN_FORCE_S):
            while topics:
                body = {"replica_id": -1, "topics": topics}
                answer = await self.admin.ask(ApiKey.LIST_OFFSETS, 7, body)
                if not any(_errors(answer)):
                    return
                await asyncio.sleep(POLL_S)

    async def _rule(self, some: Sequence[Mapping[str, Any]]) -> None:
        """Makes rules, and waits until they are in force at broker and controller."""
        self.probes += 1
        name = f"{PROBE}-{self.probes}"
        last = rule(Permission.ALLOW, Operation.CREATE, ResourceType.TOPIC, name, PROBE)
        every = [*some, last]
        for start in range(0, len(every), RULES_AT_ONCE):
            new = {"creations": every[start : start + RULES_AT_ONCE]}
            answer = await self.admin.ask(ApiKey.CREATE_ACLS, 3, new)
            assert not any(_errors(answer)), [one for one in answer["results"] if any(_errors(one))]
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        body = {"topics": [topic], "timeout_ms": 5000, "validate_only": True}
        async with Client(self.system, PROBE) as probe, asyncio.timeout(IN_FORCE_S):
            while True:
                created = await probe.ask(ApiKey.CREATE_TOPICS, 7, body)
                told = await self.admin.ask(ApiKey.DESCRIBE_ACLS, 3, _named(name))
                if created["topics"][0]["error_code"] == 0 and told["resources"]:
                    break
                await asyncio.sleep(POLL_S)

    async def _forget_rules(self) -> None:
        await self.admin.ask(ApiKey.DELETE_ACLS, 3, {"filters": [_everything()]})

    async def _fill(self, cell: Cell, turns: asyncio.Semaphore) -> Found:
        row = cell.row
        body = self._resolved(cell, row.body)
        async with turns, Client(self.system, cell.user) as client:
            try:
                answer = await client.ask(row.api, row.asked_version, body)
            except (ConnectionError, TimeoutError) as error:
                return Found(type(error).__name__, None)
        name = "" if row.among is None else self._resolved(cell, row.among[1])
        read = verdict(row, answer, name)
        symbols = Symbols(cell.prefix, self._kept(cell))
        shown = normal(row.api, row.asked_version, answer, body, symbols)
        return Found(read, shown if is_refusal(read) else None)

    def _kept(self, cell: Cell) -> dict[str, Any]:
        """The ids of the topics that were made for the cell, as bodies name them."""
        topics = {name: resolved(name, cell.prefix, {}) for name in cell.row.topics}
        topics[SHARED] = SHARED_NAME
        ids = {f"{short}.id": self.ids[name] for short, name in topics.items()}
        return {SHARED: SHARED_NAME, **ids, **self.kept.get(cell, {})}

    def _resolved(self, cell: Cell, value: Any) -> Any:
        return resolved(value, cell.prefix, self._kept(cell))


def _named(name: str) -> dict[str, Any]:
    return {**_everything(), "resource_name_filter": name}


def _everything() -> dict[str, Any]:
    """A filter that every rule matches."""
    kinds = dict.fromkeys(
        ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1
    )
    return {**kinds, **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))}


def _errors(answer: Any) -> Iterable[int]:
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            if key.endswith("error_code"):
                yield value
            else:
                yield from _errors(value)
    elif isinstance(answer, list | tuple):
        for one in answer:
            yield from _errors(one)


async def played(system: System, table: Sequence[Cell]) -> dict[Cell, Found]:
    """All cells of one system."""
    async with Client(system, SUPER) as admin:
        return await Player(system, admin).play(table)
