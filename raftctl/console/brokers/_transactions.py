"""Transactions: the list, one of them, and those that no coordinator will end.

A transaction hangs if it has been open in a partition for longer than any may last, and no
coordinator knows of it. Readers of committed records wait for it for ever.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.console.brokers._brokers import TRANSACTION_KEY, Partition, check, error_code
from raftctl.console.brokers._recent import Recent
from raftctl.console.http import Table
from raftctl.errors import ErrorCode, KafkaError
from raftctl.hanging_transactions import OpenTransaction, hanging, may_hang
from raftctl.metadata.acls import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from raftctl.console.brokers._brokers import Brokers
    from raftctl.console.http import Asked, Rights
    from raftctl.security import Requester

    Document = Mapping[str, Any]

_AT_ONCE = 2_000
"""Partitions of one question for their producers."""
_HANGING = "Hanging"
_NONE = -1


class Listed(NamedTuple):
    """A transaction: of a coordinator, or one that hangs in a partition."""

    transactional_id: str
    """Empty for one that hangs, since nobody knows it."""
    producer_id: int
    state: str
    coordinator: int
    hangs: OpenTransaction | None = None


class Found(NamedTuple):
    """All transactions that a requester sees."""

    listed: list[Listed]
    unanswered: list[dict[str, Any]]


class TransactionViews:
    """Answers about transactions."""

    def __init__(self, brokers: Brokers, wall_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._wall_ms = wall_ms
        self._recent: Recent[Found] = Recent()
        self._recent_hanging: Recent[list[OpenTransaction]] = Recent(kept_s=10)

    async def transactions(self, asked: Asked) -> dict[str, Any]:
        """Return the table of transactions, the hanging ones first."""
        requester = asked.requester
        found = await self._recent.get(requester, lambda: self._list(asked.rights))
        table: Table[Listed] = Table(
            _row,
            {
                "transactional_id": lambda one: one.transactional_id,
                "producer_id": lambda one: one.producer_id,
                "state": lambda one: one.state,
                "coordinator": lambda one: one.coordinator,
                "hanging": lambda one: one.hangs is not None,
            },
            name=lambda one: one.transactional_id or str(one.producer_id),
        )
        answer = await table.answer(found.listed, asked.fields, self._brokers.image.offset)
        described = await self._described(requester, answer["rows"])
        rows = [{**row, **described.get(row["transactional_id"], {})} for row in answer["rows"]]
        return {**answer, "rows": rows, "unanswered": found.unanswered}

    async def transaction(self, asked: Asked) -> dict[str, Any]:
        """Return one transactional id, with the partitions of its open transaction."""
        asked.fields.end()
        requester, name = asked.requester, asked.named["id"]
        asked.rights.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        coordinator = await self._brokers.coordinator(requester, TRANSACTION_KEY, name)
        absent = KafkaError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {name:.100}"
        )
        if coordinator is None:
            raise absent
        body = {"transactional_ids": [name]}
        answer = await self._brokers.ask(requester, "DESCRIBE_TRANSACTIONS", body, coordinator)
        [found] = answer["transaction_states"]
        if found["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise absent
        check(found["error_code"])
        one = Listed(name, found["producer_id"], found["transaction_state"], coordinator)
        return {**_row(one), **_more(found), "topics": found["topics"]}

    async def hanging(self, rights: Rights) -> list[OpenTransaction]:
        """Return the transactions that hang in partitions which the requester may read.

        None for who may not describe all transactional ids: another's would seem to hang.
        """
        requester = rights.requester
        if not rights.may_all(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID):
            return []
        return await self._recent_hanging.get(requester, lambda: self._search(requester))

    # --- brokers ----------------------------------------------------------------------------------

    async def _list(self, rights: Rights) -> Found:
        requester = rights.requester
        body = {"state_filters": (), "producer_id_filters": ()}
        found, hang = await asyncio.gather(
            self._brokers.ask_all(requester, "LIST_TRANSACTIONS", body), self.hanging(rights)
        )
        failures = dict(found.failures)
        listed = []
        for broker_id, answer in found.answers.items():
            if answer["error_code"]:
                failures[broker_id] = KafkaError(error_code(answer["error_code"]))
            listed += [
                Listed(
                    one["transactional_id"],
                    one["producer_id"],
                    one["transaction_state"],
                    broker_id,
                )
                for one in answer["transaction_states"]
            ]
        listed.sort(key=lambda one: one.transactional_id)
        first = [Listed("", one.producer_id, _HANGING, _NONE, one) for one in hang]
        return Found([*first, *listed], found._replace(failures=failures).unanswered)

    async def _described(
        self, requester: Requester, rows: Iterable[Document]
    ) -> dict[str, Document]:
        """Return what the rows of a window have beyond the list, by transactional id."""
        names: dict[int, list[str]] = {}
        for row in rows:
            if row["transactional_id"] is not None:
                names.setdefault(row["coordinator"], []).append(row["transactional_id"])
        bodies = {one: {"transactional_ids": some} for one, some in names.items()}
        found = await self._brokers.ask_each(requester, "DESCRIBE_TRANSACTIONS", bodies)
        return {
            one["transactional_id"]: _more(one)
            for answer in found.answers.values()
            for one in answer["transaction_states"]
            if not one["error_code"]
        }

    async def _search(self, requester: Requester) -> list[OpenTransaction]:
        now_ms = self._wall_ms()
        image = self._brokers.image
        partitions = (
            Partition(topic.name, number)
            for topic in image.topics.topics.values()
            for number in topic.partitions
        )
        suspects: list[OpenTransaction] = []
        while some := list(islice(partitions, _AT_ONCE)):
            suspects += [one for one in await self._open(requester, some) if may_hang(one, now_ms)]
        if not suspects:
            return []
        return hanging(suspects, await self._attended(requester, suspects))

    async def _open(
        self, requester: Requester, partitions: Iterable[Partition]
    ) -> Iterator[OpenTransaction]:
        bodies = {
            leader: {
                "topics": [
                    {"name": name, "partition_indexes": numbers}
                    for name, numbers in _numbers(some).items()
                ]
            }
            for leader, some in self._brokers.leaders(partitions).items()
        }
        found = await self._brokers.ask_each(requester, "DESCRIBE_PRODUCERS", bodies)
        return (
            OpenTransaction(
                topic["name"],
                one["partition_index"],
                producer["producer_id"],
                producer["producer_epoch"],
                producer["coordinator_epoch"],
                producer["current_txn_start_offset"],
                producer["last_timestamp"],
            )
            for answer in found.answers.values()
            for topic in answer["topics"]
            for one in topic["partitions"]
            for producer in one["active_producers"]
            if producer["current_txn_start_offset"] != _NONE
        )

    async def _attended(
        self, requester: Requester, suspects: Iterable[OpenTransaction]
    ) -> set[tuple[int, str, int]]:
        """Return (producer id, topic, partition) of the transactions that coordinators know."""
        ids = sorted({one.producer_id for one in suspects})
        body = {"state_filters": (), "producer_id_filters": ids}
        listed = await self._brokers.ask_all(requester, "LIST_TRANSACTIONS", body)
        bodies = {
            broker_id: {
                "transactional_ids": [
                    one["transactional_id"] for one in answer["transaction_states"]
                ]
            }
            for broker_id, answer in listed.answers.items()
            if answer["transaction_states"]
        }
        if listed.failures:
            # One that does not answer may know them: to call them hanging would have them aborted.
            raise next(iter(listed.failures.values()))
        found = await self._brokers.ask_each(requester, "DESCRIBE_TRANSACTIONS", bodies)
        for error in found.failures.values():
            raise error
        return {
            (one["producer_id"], topic["topic"], number)
            for answer in found.answers.values()
            for one in answer["transaction_states"]
            for topic in one["topics"]
            for number in topic["partitions"]
        }


def _numbers(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in partitions:
        found.setdefault(one.topic, []).append(one.partition)
    return found


def _row(one: Listed) -> dict[str, Any]:
    hangs = one.hangs
    row = {
        "transactional_id": one.transactional_id or None,
        "producer_id": one.producer_id,
        "epoch": None,
        "state": one.state,
        "coordinator": one.coordinator,
        "started_ms": None,
        "timeout_ms": None,
        "partitions": None,
        "hanging": False,
    }
    if hangs is None:
        return row
    return row | {
        "epoch": hangs.producer_epoch,
        "coordinator": None,
        "started_ms": hangs.last_timestamp_ms,
        "partitions": 1,
        "hanging": True,
        "topic": hangs.topic,
        "partition": hangs.partition,
        "start_offset": hangs.start_offset,
    }


def _more(found: Document) -> dict[str, Any]:
    started_ms = found["transaction_start_time_ms"]
    return {
        "epoch": found["producer_epoch"],
        "state": found["transaction_state"],
        "started_ms": None if started_ms < 0 else started_ms,
        "timeout_ms": found["transaction_timeout_ms"],
        "partitions": sum(len(topic["partitions"]) for topic in found["topics"]),
    }
