"""`raftctl verifiable-producer|verifiable-consumer` against a broker whose logs are in memory."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.types import AppendResult
from raftctl.cli.main import run
from raftctl.errors import ErrorCode
from tests.unit.broker.server.test_groups import add_topic, quick, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("A1", "A2")

READ_ALL = ("--topic", "two", "--group-id", "g", "--max-messages", "5")


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [one for one in events if one["name"] == name]


class Verifiable:
    """The commands in this process, in a thread."""

    def __init__(self, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._at = ("--bootstrap-server", broker.address)
        self._capsys = capsys

    async def run(self, kind: str, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        """(status, events, stderr)."""
        status = await asyncio.to_thread(run, [f"verifiable-{kind}", *arguments, *self._at])
        out, err = self._capsys.readouterr()
        return status, [json.loads(line) for line in out.splitlines()], err

    async def events(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """The events of a command that succeeded."""
        status, events, err = await self.run(kind, *arguments)
        assert (status, err) == (0, "")
        assert all(isinstance(one["timestamp"], int) for one in events)
        return events


async def test_a_producer_counts_and_tells_where_each_record_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with quick() as broker:
        add_topic(broker, "two", 2)
        verifiable = Verifiable(broker, capsys)
        keyed = ("--value-prefix", "7", "--repeating-keys", "2", "--throughput", "1000000")
        told = await verifiable.events("producer", "--topic", "two", "--max-messages", "5", *keyed)
        names = [one["name"] for one in told]
        ends = ["shutdown_complete", "tool_data"]
        assert names == ["startup_complete", *["producer_send_success"] * 5, *ends]
        sent = named(told, "producer_send_success")
        assert sorted((one["value"], one["key"]) for one in sent) == [
            (f"7.{number}", str(number % 2)) for number in range(5)
        ]
        for partition, found in Counter(one["partition"] for one in sent).items():
            offsets = [one["offset"] for one in sent if one["partition"] == partition]
            assert offsets == list(range(found))
        assert {one["topic"] for one in sent} == {"two"}
        summary = told[-1]
        assert (summary["sent"], summary["acked"]) == (5, 5)
        assert summary["target_throughput"] == 1_000_000
        assert summary["avg_throughput"] > 0

        unheard = ("--topic", "two", "--max-messages", "1", "--acks", "0")
        told = await verifiable.events("producer", *unheard)
        (one,) = named(told, "producer_send_success")
        assert (one["key"], one["value"], one["offset"]) == (None, "0", -1)


async def test_a_record_that_is_refused_is_an_event_and_a_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick("t") as broker:
        refused = [AppendResult(ErrorCode.MESSAGE_TOO_LARGE)]
        monkeypatch.setattr(broker.replicas, "append", lambda *_, **__: refused)
        verifiable = Verifiable(broker, capsys)
        place = ("--topic", "t", "--max-messages", "1")
        status, told, err = await verifiable.run("producer", *place)
        assert status == 1
        assert err.startswith("raftctl: MESSAGE_TOO_LARGE: 1 of 1 records were not acknowledged")
        (one,) = named(told, "producer_send_error")
        assert (one["key"], one["value"], one["topic"]) == (None, "0", "t")
        assert one["exception"] == "MSG_SIZE_TOO_LARGE"
        assert "too large" in one["message"]
        assert (told[-1]["sent"], told[-1]["acked"]) == (1, 0)


async def test_refused_records_without_keys_are_said_to_need_some_where_logs_are_compacted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick("t") as broker:
        refused = [AppendResult(ErrorCode.INVALID_RECORD)]
        monkeypatch.setattr(broker.replicas, "append", lambda *_, **__: refused)
        verifiable = Verifiable(broker, capsys)
        place = ("--topic", "t", "--max-messages", "1")
        why = "if t is compacted (cleanup.policy), each record needs a key: give --repeating-keys"
        status, _, err = await verifiable.run("producer", *place)
        assert (status, why in err) == (1, True), err
        status, _, err = await verifiable.run("producer", *place, "--repeating-keys", "1")
        assert (status, why in err) == (1, False), err


@pytest.mark.parametrize(
    "protocol",
    [
        ("--group-protocol", "consumer"),
        ("--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor"),
    ],
)
async def test_a_consumer_tells_what_it_is_assigned_reads_and_commits(
    protocol: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick() as broker:
        add_topic(broker, "two", 2)
        verifiable = Verifiable(broker, capsys)
        keyed = ("--topic", "two", "--repeating-keys", "3")
        wrote = await verifiable.events("producer", *keyed, "--max-messages", "6")
        told = await verifiable.events("consumer", *READ_ALL, *protocol, "--verbose")
        assert told[0]["name"] == "startup_complete"
        assert [one["name"] for one in told[-2:]] == ["partitions_revoked", "shutdown_complete"]
        both = [{"topic": "two", "partition": number} for number in range(2)]
        assigned = named(told, "partitions_assigned")[-1]["partitions"]
        assert sorted(assigned, key=lambda one: one["partition"]) == both

        fields = ("key", "value", "topic", "partition", "offset")
        read = [[one[field] for field in fields] for one in named(told, "record_data")]
        sent = [[one[field] for field in fields] for one in named(wrote, "producer_send_success")]
        assert len(read) == 5
        assert all(one in sent for one in read)
        consumed = named(told, "records_consumed")
        assert sum(one["count"] for one in consumed) == 5
        for one in consumed:
            assert one["count"] == sum(part["count"] for part in one["partitions"])
        parts = [part for one in consumed for part in one["partitions"]]
        assert all(p["maxOffset"] - p["minOffset"] + 1 == p["count"] for p in parts)

        committed = named(told, "offsets_committed")
        assert all(one["success"] and "error" not in one for one in committed)
        offsets = [part for one in committed for part in one["offsets"]]
        assert [one["offset"] for one in offsets] == [one["maxOffset"] + 1 for one in parts]
        # The next member reads on after them.
        left = ("--topic", "two", "--group-id", "g", "--max-messages", "1", "--enable-autocommit")
        told = await verifiable.events("consumer", *left, *protocol)
        (one,) = named(told, "records_consumed")
        (part,) = one["partitions"]
        assert part["minOffset"] == part["maxOffset"]
        assert not named(told, "offsets_committed") + named(told, "record_data")


async def test_what_makes_no_sense_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with quick("t") as broker:
        verifiable = Verifiable(broker, capsys)
        member = ("consumer", "--topic", "t", "--group-id", "g")
        for arguments, status, words in [
            (("producer", "--topic", "t", "--throughput", "0"), 2, "--throughput 0"),
            (("producer", "--topic", "t", "--acks", "2"), 2, "--acks"),
            (("producer", "--topic", "t", "--repeating-keys", "0"), 2, "--repeating-keys"),
            (("producer", "--topic", "t", "--command-property", "x=1"), 2, "--command-property"),
            (("consumer", "--topic", "t", "--group-id", ""), 2, "--group-id is empty"),
            (("consumer", "--topic", "none", "--group-id", "g"), 1, "no topic none"),
            ((*member, "--assignment-strategy", "x"), 2, "--assignment-strategy x: unknown"),
            ((*member, "--session-timeout", "0"), 2, "--session-timeout"),
            ((*member, "--reset-policy", "x"), 2, "--reset-policy"),
        ]:
            assert (told := await verifiable.run(*arguments))[:2] == (status, []), told
            assert words in told[2]
        # Without a committed offset there is no place to begin at.
        status, events, err = await verifiable.run(*member, "--reset-policy", "none")
        assert (status, events[-1]["name"]) == (1, "shutdown_complete")
        assert err.startswith("raftctl: OFFSET_OUT_OF_RANGE")


# --- told to end ----------------------------------------------------------------------------------


@asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process, which is killed if it is there at the end."""
    command = [sys.executable, "-m", "raftctl", *arguments]
    made = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def read_until(
    process: asyncio.subprocess.Process, is_it: Callable[[dict[str, Any]], bool]
) -> None:
    """Reads events up to the first that is it."""
    assert process.stdout is not None
    while not is_it(json.loads(await process.stdout.readline())):
        pass


async def ended(process: asyncio.subprocess.Process, number: int) -> list[dict[str, Any]]:
    """The events after the signal; its status was 0."""
    process.send_signal(number)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


async def test_both_end_cleanly_when_they_are_told() -> None:
    async with quick("t") as broker:
        at = ("--topic", "t", "--bootstrap-server", broker.address)
        consumer = ("verifiable-consumer", *at, "--group-id", "g")
        async with (
            started("verifiable-producer", *at, "--throughput", "100") as writing,
            started(*consumer) as reading,
        ):
            await read_until(reading, lambda one: one["name"] == "offsets_committed")
            told = await ended(writing, signal.SIGTERM)
            assert [one["name"] for one in told[-2:]] == ["shutdown_complete", "tool_data"]
            assert told[-1]["sent"] == told[-1]["acked"] > 0
            assert not named(told, "producer_send_error")
            told = await ended(reading, signal.SIGINT)
            assert [one["name"] for one in told[-2:]] == ["partitions_revoked", "shutdown_complete"]


async def test_a_producer_told_twice_gives_up_what_is_not_answered() -> None:
    async with quick("t") as broker:
        broker.replicas.hold = True
        at = ("--topic", "t", "--bootstrap-server", broker.address)
        async with started("verifiable-producer", *at, "--max-messages", "1") as writing:
            await until(lambda: bool(broker.replicas.held))
            writing.send_signal(signal.SIGINT)
            writing.send_signal(signal.SIGTERM)
            out, _ = await writing.communicate()
            assert writing.returncode == 1
            told = [json.loads(line) for line in out.splitlines()]
            (one,) = named(told, "producer_send_error")
            assert (one["value"], one["exception"]) == ("0", "_PURGE_INFLIGHT")
            assert (told[-1]["sent"], told[-1]["acked"]) == (1, 0)
