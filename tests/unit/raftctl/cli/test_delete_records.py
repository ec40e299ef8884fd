"""`raftctl delete-records`, from its file to the logs of all replicas."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.main import BAD_INPUT, FAILED, run
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import World, eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("L7", "A1")
SERVER = ("--bootstrap-server", "127.0.0.1:1")


def written(directory: Path, text: str) -> tuple[str, str]:
    path = directory / "offsets.json"
    path.write_text(text)
    return "--offset-json-file", str(path)


async def test_records_are_deleted_from_all_replicas(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with World(2, listen=True) as world:
        world.create_topic()
        leader = world.nodes[1]
        for _ in range(5):
            leader.append(make_batch([b"v"]))
        await eventually(lambda: leader.replica().state.high_watermark == 5)
        server = ("--bootstrap-server", f"127.0.0.1:{leader.port}", "--output", "json")

        async def status(*offsets: int) -> int:
            partitions = [
                {"topic": "t", "partition": number, "offset": offset}
                for number, offset in enumerate(offsets)
            ]
            file = written(tmp_path, json.dumps({"partitions": partitions}))
            return await asyncio.to_thread(run, ["delete-records", *file, *server])

        assert await status(3) == 0
        (told,) = json.loads(capsys.readouterr().out)
        assert (told["topic"], told["partition"], told["low_watermark"]) == ("t", 0, 3)
        assert [one.replica().log.log_start_offset for one in world.nodes.values()] == [3, 3]
        assert await status(99) == FAILED
        captured = capsys.readouterr()
        assert json.loads(captured.out)[0]["error"] == "OFFSET_OUT_OF_RANGE"
        assert captured.err == (
            "raftctl: OFFSET_OUT_OF_RANGE: no records were deleted from t-0: "
            "offset 99 is not among 3 to 5\n"
        )
        assert await status(-1) == 0
        assert json.loads(capsys.readouterr().out)[0]["low_watermark"] == 5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not valid JSON"),
        ("[]", "version must be 1"),
        ('{"version": 2, "partitions": []}', "version must be 1"),
        ('{"partitions": []}', "names no partitions"),
        ('{"partitions": [3]}', "3 is none of"),
        ('{"partitions": [{"topic": "t", "partition": -1, "offset": 1}]}', "is none of"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}', "is none of"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": true}]}', "is none of"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1},'
            ' {"topic": "t", "partition": 0, "offset": 2}]}',
            "names a partition twice",
        ),
    ],
)
def test_bad_files_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, why: str
) -> None:
    assert run(["delete-records", *written(tmp_path, text), *SERVER]) == BAD_INPUT
    assert why in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "none.json")
    assert run(["delete-records", "--offset-json-file", path, *SERVER]) == BAD_INPUT
    assert path in capsys.readouterr().err
