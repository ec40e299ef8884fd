"""`raftctl transactions` against brokers with a transaction that hangs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from broker.transactions import ProducerGoesOn
from broker.types import EndMarker
from raftctl.cli.main import run
from tests.unit.broker.replication.transaction_world import TransactionWorld, records, transactions
from tests.unit.broker.replication.world import P0, eventually

pytestmark = pytest.mark.req("T3", "A1")
IN_PARTITION = ("--topic", "t", "--partition", "0")


class Commands:
    """`raftctl transactions` in another thread, so that the brokers can answer."""

    def __init__(self, capsys: pytest.CaptureFixture[str], found: TransactionWorld) -> None:
        self._capsys = capsys
        self._address = f"127.0.0.1:{found.node.port}"

    async def status(self, *arguments: str) -> tuple[int, str, str]:
        """(exit status, stdout, stderr)"""
        asked = ["transactions", *arguments, "--bootstrap-server", self._address]
        self._capsys.readouterr()
        status = await asyncio.to_thread(run, asked)
        told = self._capsys.readouterr()
        return status, told.out, told.err

    async def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints."""
        status, out, err = await self.status(*arguments, "--output", "json")
        assert status == 0, err
        return json.loads(out)


async def test_transactions_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    async with transactions() as found:
        producer = await found.begin()
        await found.produce(12, producer, 0)
        commands = Commands(capsys, found)
        (listed,) = await commands.json("list")
        assert listed == {
            "transactional_id": "x",
            "coordinator": 2,
            "producer_id": producer.producer_id,
            "state": "Ongoing",
        }
        assert await commands.json("list", "--state", "Empty") == []
        assert await commands.json("list", "--transactional-id-pattern", "y.*") == []
        assert await commands.json("list", "--duration-filter", "3600000") == []
        status, out, _ = await commands.status("describe", "x")
        assert status == 0
        assert out.split()[:4] == [
            "CoordinatorId",
            "TransactionalId",
            "ProducerId",
            "ProducerEpoch",
        ]
        described = await commands.json("describe", "x")
        assert described[0]["partitions"] == ["t-0"]
        status, _, err = await commands.status("describe", "nobody")
        assert status == 1
        assert err == (
            "raftctl: TRANSACTIONAL_ID_NOT_FOUND: no transactional id nobody; "
            "raftctl transactions list shows all\n"
        )


async def test_a_transaction_that_hangs_is_found_and_aborted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with transactions() as found:
        attended = await found.begin()
        await found.produce(12, attended, 0)
        # As a delayed batch of an older client leaves it, where brokers do not ask.
        hanging = ProducerGoesOn(77, 3)
        found.node.append(records(hanging, 0))
        commands = Commands(capsys, found)
        centuries = ("--max-transaction-timeout", "100000000")
        assert await commands.json("find-hanging", *centuries) == [], "it may still be going on"
        (one,) = await commands.json("find-hanging")
        assert (one["topic"], one["partition"], one["producer_id"]) == ("t", 0, 77)
        at = ("--start-offset", str(one["start_offset"]))
        status, out, _ = await commands.status("abort", *IN_PARTITION, *at, "--dry-run")
        assert (status, "would be aborted" in out) == (0, True)
        assert _open(found) == [(9, 0), (77, 1)]
        assert (await commands.json("abort", *IN_PARTITION, *at))["producer_epoch"] == 3
        await eventually(lambda: _open(found) == [(9, 0)])
        assert await commands.json("find-hanging") == []
        assert (await commands.status("find-hanging"))[1] == "no transaction hangs\n"
        status, _, err = await commands.status("abort", *IN_PARTITION, *at)
        assert (status, "INVALID_TXN_STATE" in err) == (1, True)


def _open(found: TransactionWorld) -> list[tuple[int, int]]:
    producers = found.node.replica().log.producers.items()
    return [(name, one.open_from) for name, one in producers if one.open_from >= 0]


async def test_producers_of_a_partition_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    async with transactions() as found:
        found.node.append(records(ProducerGoesOn(77, 3), 0, count=4))
        found.node.replicas.append(1, 1_000, [(P0, EndMarker(77, 3, True, 6))])
        found.node.append(records(ProducerGoesOn(77, 3), 4))
        commands = Commands(capsys, found)
        (one,) = await commands.json("describe-producers", *IN_PARTITION)
        assert one["producer_id"] == 77
        assert one["producer_epoch"] == 3
        assert one["coordinator_epoch"] == 6
        assert (one["last_sequence"], one["start_offset"]) == (4, 5)
        status, _, err = await commands.status(
            "describe-producers", "--topic", "t", "--partition", "9"
        )
        assert status == 1, err
        status, _, err = await commands.status("find-hanging", "--partition", "0")
        assert (status, "--partition N needs --topic" in err) == (2, True)
