"""Apache Kafka's own tools as clients: what is made of what they tell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli.main import run
from jepsen.environments import Entrance
from jepsen.history import Op, OpType
from jepsen.workloads import WorkloadOptions
from jepsen.workloads.verifiable import BATCH, VerifiableClient
from tests.unit.jepsen.workloads.sessions import ScriptedSession

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J3")
ACKED = {"name": "producer_send_success", "partition": 0}
READ = {"name": "record_data", "partition": 0}


def tools(folder: Path, *told: dict[str, Any]) -> str:
    """A distribution whose tools write down their arguments and tell that, without an end."""
    events = "\n".join(["Java: a warning", "[1]", *map(json.dumps, told)])
    for tool in ("producer", "consumer"):
        path = folder / "bin" / f"kafka-verifiable-{tool}.sh"
        path.parent.mkdir(exist_ok=True)
        end = "exit 1" if not told else "exec sleep 600"
        text = f"#!/bin/sh\necho $@ >> {folder}/calls\ncat <<'END'\n{events}\nEND\n{end}\n"
        path.write_text(text)
        path.chmod(0o755)
    return str(folder)


def client(home: str, end: int = 0, command_config: str = "") -> VerifiableClient:
    session = ScriptedSession()
    session.end = {"0": end}
    entrance = Entrance("h:1", command_config=command_config)
    return VerifiableClient(session, WorkloadOptions(topic="t", kafka_home=home), entrance, 7)


def op(f: str, value: Any) -> Op:
    return Op(0, 0, 7, OpType.INVOKE, f, value)


async def test_what_the_producer_tells_is_where_its_values_are(tmp_path: Path) -> None:
    home = tools(
        tmp_path, ACKED | {"value": "3.0", "offset": 8}, ACKED | {"value": "3.1", "offset": 9}
    )
    sends = [["send", "0", 3 * BATCH], ["send", "0", 3 * BATCH + 1]]
    done = await client(home).invoke(op("send", sends))
    assert done.type is OpType.OK
    assert done.value == [["send", "0", [8, 3 * BATCH]], ["send", "0", [9, 3 * BATCH + 1]]]
    call = (tmp_path / "calls").read_text()
    assert "--topic t --max-messages 2 --value-prefix 3 --acks -1" in call


@pytest.mark.req("S7")
async def test_the_tools_log_in(tmp_path: Path) -> None:
    home = tools(
        tmp_path,
        ACKED | {"value": "0.0", "offset": 0},
        READ | {"value": "0.0", "offset": 0},
    )
    made = client(home, end=1, command_config="/etc/client.properties")
    assert (await made.invoke(op("send", [["send", "0", 0]]))).type is OpType.OK
    assert (await made.invoke(op("final-poll", [["poll"]]))).type is OpType.OK
    sent, read = (tmp_path / "calls").read_text().splitlines()
    assert "--producer.config /etc/client.properties" in sent
    assert "--consumer.config /etc/client.properties" in read


async def test_nothing_that_a_producer_did_not_tell_has_surely_failed(tmp_path: Path) -> None:
    sends = [["send", "0", 0], ["send", "0", 1]]
    done = await client(tools(tmp_path)).invoke(op("send", sends))
    assert (done.type, done.value) == (OpType.INFO, sends)


async def test_a_consumer_reads_to_the_end_in_a_group_of_its_own(tmp_path: Path) -> None:
    home = tools(
        tmp_path, READ | {"value": "0.5", "offset": 0}, READ | {"value": "2.1", "offset": 1}
    )
    reader = client(home, end=2)
    for _ in range(2):
        done = await reader.invoke(op("final-poll", [["poll"]]))
        assert done.value == [["poll", {"0": [[0, 5], [1, 2 * BATCH + 1]]}]]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [one.split("--group-id ")[1].split()[0] for one in calls] == ["t-7-0", "t-7-1"]


async def test_a_consumer_that_ends_too_early_has_read_nothing(tmp_path: Path) -> None:
    reader = client(tools(tmp_path), end=2)
    assert (await reader.invoke(op("final-poll", [["poll"]]))).type is OpType.FAIL
    assert (await client("").invoke(op("final-poll", [["poll"]]))).value == [["poll", {"0": []}]]


def test_a_folder_without_the_tools_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--kafka-home", str(tmp_path)]
    for words in (["verifiable"], ["queue", *home], ["verifiable", *home]):
        assert run(["test", *words, "--store", str(tmp_path / "store")]) == 254
        assert "--kafka-home" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
