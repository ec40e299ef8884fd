"""`raftctl console produce|consume` against a broker whose logs are in memory."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.cli.main import run
from tests.unit.broker.server.test_groups import add_topic, quick

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("A1", "A2")

ALL = ("--from-beginning", "--timeout-ms", "60000", "--max-messages")


class Console:
    """The commands in this process, in a thread, with lines as standard input."""

    def __init__(
        self,
        broker: FakeBroker,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self._broker = broker
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    async def run(self, *arguments: str, lines: bytes = b"") -> tuple[int, str, str]:
        """(status, stdout, stderr)."""
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        command = ["console", *arguments, "--bootstrap-server", self._broker.address]
        status = await asyncio.to_thread(run, command)
        out, err = self._capsys.readouterr()
        return status, out, err

    async def produce(self, *arguments: str, lines: bytes) -> Any:
        """The document of a command that succeeded."""
        told = await self.run("produce", *arguments, "--output", "json", lines=lines)
        assert told[0] == 0, told
        return json.loads(told[1])

    async def consume(self, *arguments: str) -> list[dict[str, Any]]:
        """The records, in the order of their offsets."""
        told = await self.run("consume", *arguments, "--output", "json")
        assert told[0] == 0, told
        records = [json.loads(line) for line in told[1].splitlines()]
        return sorted(records, key=lambda one: (one["partition"], one["offset"]))


async def test_lines_become_records_and_records_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick("t") as broker:
        add_topic(broker, "two", 2)
        console = Console(broker, monkeypatch, capsys)
        keyed = ("--topic", "two", "--key-separator", ": ", "--null-marker", "NULL")
        lines = b"a: 1\r\nb: NULL\n: x: y\nc: \xff"
        headers = ("--header", "trace=a=b", "--header", "trace=")
        wrote = await console.produce(*keyed, *headers, "--partition", "1", lines=lines)
        ends = {"partition": 1, "first_offset": 0, "last_offset": 3}
        assert wrote == {"topic": "two", "records": 4, "partitions": [ends]}
        records = await console.consume("--topic", "two", *ALL, "4")
        assert [(one["key"], one.get("value")) for one in records] == [
            ("a", "1"),
            ("b", None),
            ("", "x: y"),
            ("c", None),
        ]
        assert records[1]["value"] is None
        both = [{"name": "trace", "value": "a=b"}, {"name": "trace", "value": ""}]
        assert all(one["headers"] == both for one in records)
        assert records[3]["value_base64"] == "/w=="
        assert {one["partition"] for one in records} == {1}
        assert records[0]["timestamp_ms"] > 0
        place = ("--topic", "two", "--partition", "1", "--offset", "2", "--max-messages", "2")
        status, out, err = await console.run("consume", *place, "--print-key")
        assert (status, out) == (0, "\tx: y\nc\t\\xff\n")
        assert err == "2 records shown\n"


async def test_a_topic_that_was_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick("t") as broker:
        console = Console(broker, monkeypatch, capsys)
        told = await console.run("produce", "--topic", "misspelt", lines=b"1\n")
        assert told == (
            0,
            "wrote 1 record to misspelt\n",
            "created topic misspelt: 1 partition\n",
        )


async def test_a_group_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick("t") as broker:
        console = Console(broker, monkeypatch, capsys)
        told = await console.run("produce", "--topic", "t", lines=b"1\n2\n3\n")
        assert told == (0, "wrote 3 records to t\n", "")
        member = ("--topic", "t", "--group", "g", *ALL)
        assert [one["value"] for one in await console.consume(*member, "2")] == ["1", "2"]
        assert [one["value"] for one in await console.consume(*member, "1")] == ["3"]


async def test_what_ends_early_or_makes_no_sense_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with quick("t") as broker:
        console = Console(broker, monkeypatch, capsys)
        at = ("--topic", "t")
        told = await console.run("produce", *at, "--key-separator", ":", lines=b"a:1\nb\nc:3\n")
        assert (told[0], "line 2 has no --key-separator; what comes" in told[2]) == (1, True)
        before = await console.consume(*at, *ALL, "1")
        assert [one["value"] for one in before] == ["1"], "what stood before the line is written"
        few = await console.run("consume", *at, "--timeout-ms", "1", "--max-messages", "9")
        assert few[:2] == (1, "")
        assert "no record for 1 ms after 0 of 9" in few[2]
        quiet = await console.run("consume", *at, "--timeout-ms", "1")
        assert quiet[:2] == (0, ""), "from the end on nothing has come"
        for arguments, status, words in [
            (("produce", *at, "--partition", "7"), 1, "t has the partitions 0 to 0"),
            (("produce", *at, "--key-separator", ""), 2, "--key-separator is empty"),
            (("produce", *at, "--command-property", "x=1"), 2, "--command-property"),
            (("produce", *at, "--header", "x"), 2, "--header 'x': write NAME=VALUE"),
            (("produce", *at, "--header", "=x"), 2, "--header '=x': write NAME=VALUE"),
            (("produce", *at, "--header", "\udcff=x"), 2, "the name is not UTF-8"),
            (("produce", "--topic", ""), 2, "--topic is empty"),
            (("consume", *at, "--partition", "7"), 1, "t has the partitions 0 to 0"),
            (("consume", "--topic", "none"), 1, "no topic none; raftctl topics create makes one"),
            (("consume", *at, "--offset", "3"), 2, "--offset needs --partition"),
            (("consume", *at, "--group", "g", "--partition", "0"), 2, "either --group or"),
            (("consume", *at, "--group", ""), 2, "--group is empty"),
            (("consume", *at, "--isolation-level", "x"), 2, "--isolation-level"),
            (
                ("consume", *at, "--partition", "0", "--offset", "3", "--from-beginning"),
                2,
                "either --offset or --from-beginning",
            ),
        ]:
            found = await console.run(*arguments)
            assert (found[0], words in found[2]) == (status, True), (arguments, found)
