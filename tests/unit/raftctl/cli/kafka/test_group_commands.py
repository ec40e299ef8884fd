"""`raftctl groups` against a broker whose logs are in memory."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.cli.kafka.groups import parse_reset
from raftctl.cli.main import run
from raftctl.errors import ConfigError
from raftctl.offset_resets import Reset
from tests.unit.broker.server.test_groups import (
    add_topic,
    aio_member,
    assigned,
    confluent_member,
    fill,
    polling,
    quick,
    until,
)

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import FakeBroker


class Commands:
    """`raftctl groups` in this process, each in a thread of its own."""

    def __init__(self, broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """(status, stdout, stderr)."""
        command = ["groups", *arguments, "--bootstrap-server", self._broker.address]
        status = await asyncio.to_thread(run, command)
        out, err = self._capsys.readouterr()
        return status, out, err

    async def document(self, *arguments: str) -> Any:
        """The JSON that it prints."""
        status, out, err = await self.run(*arguments, "--output", "json")
        assert status == 0, err
        return json.loads(out)

    async def reset(self, to: str, *more: str) -> list[int]:
        """The new offsets."""
        found = await self.document("reset-offsets", "g", "--to", to, *more)
        return [one["new_offset"] for one in found]

    async def current(self) -> list[int | None]:
        """The committed offsets, in order of the partitions."""
        found = await self.document("describe", "g")
        return [one["current_offset"] for one in found["partitions"]]


@pytest.mark.req("G3")
async def test_a_group_is_described_while_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    async with quick("t") as broker:
        await fill(broker, "t", 5)
        commands = Commands(broker, capsys)
        member = confluent_member(broker, client_id="c")
        member.subscribe(["t"])
        await until(lambda: len(assigned(member)) == 1, polling([member]))
        status, out, _ = await commands.run("describe", "g")
        assert (status, out.splitlines()[0]) == (0, "g: Stable")
        assert out.splitlines()[1].split()[:6] == [
            *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        ]
        (row,) = (await commands.document("describe", "g"))["partitions"]
        assert (row["current_offset"], row["log_end_offset"], row["client_id"]) == (None, 5, "c")
        refused = await commands.run("reset-offsets", "g", "--to", "latest")
        assert (refused[0], "NON_EMPTY_GROUP" in refused[2]) == (1, True)
        refused = await commands.run("delete", "g")
        assert (refused[0], "NON_EMPTY_GROUP" in refused[2]) == (1, True)
        await asyncio.to_thread(member.close)


@pytest.mark.req("G3")
async def test_a_group_is_reset_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    async with quick("t") as broker:
        add_topic(broker, "two", 2)
        await fill(broker, "two", 50)
        commands = Commands(broker, capsys)
        member = aio_member(broker, "two")
        await member.start()
        await member.getmany(timeout_ms=5_000)
        await member.commit()
        await member.stop()
        assert await commands.document("list", "--state", "Empty") == [
            {"group": "g", "state": "Empty", "simple": False}
        ]
        assert await commands.document("list", "--state", "stable") == []
        before = await commands.current()
        assert await commands.reset("earliest", "--dry-run") == [0, 0]
        assert await commands.current() == before
        assert await commands.reset("offset=40", "--topic", "two:0") == [40]
        assert await commands.reset("shift=-15", "--topic", "two:0") == [25]
        assert await commands.reset("shift=-30", "--topic", "two:0") == [0]
        assert await commands.reset("shift=99") == [50, 0]
        assert await commands.reset("time=0", "--topic", "two:0") == [0]
        # After the newest record.
        assert await commands.reset("time=9999999999999", "--topic", "two:0") == [50]
        assert await commands.reset("latest", "--topic", "two", "--topic", "t") == [50, 0, 0]
        for topic in ("no", "two:7"):
            refused = await commands.run("reset-offsets", "g", "--to", "latest", "--topic", topic)
            assert (refused[0], "UNKNOWN_TOPIC_OR_PARTITION" in refused[2]) == (1, True)
        assert (await commands.run("reset-offsets", "g", "--to", "x"))[0] == 2
        assert (await commands.run("reset-offsets", "g", "--to", "latest", "--topic", "t:x"))[
            0
        ] == 2
        assert (await commands.run("reset-offsets", "new", "--to", "latest"))[0] == 1
        assert (await commands.run("delete", "g"))[0] == 0
        gone = await commands.run("describe", "g")
        assert (gone[0], "GROUP_ID_NOT_FOUND" in gone[2]) == (1, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Reset("earliest")),
        ("time=12", Reset("time", 12)),
        ("offset=3", Reset("offset", 3)),
        ("shift=-3", Reset("shift", -3)),
    ],
)
def test_where_to(text: str, expected: Reset) -> None:
    assert parse_reset(text) == expected


@pytest.mark.parametrize("text", ["", "first", "offset=-3", "time=x", "offset", "shift=--3"])
def test_what_is_nowhere(text: str) -> None:
    with pytest.raises(ConfigError, match="--to"):
        parse_reset(text)
