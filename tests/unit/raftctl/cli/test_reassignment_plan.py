"""Reassignment files and plans."""

from __future__ import annotations

import json
import random

import pytest

from raftctl.cli._options import Printer
from raftctl.cli._output import Output
from raftctl.cli.kafka.placement.reassign_partitions import (
    Plan,
    generate,
    parse_plan,
    parse_topics,
    plan_document,
    progress,
    show_plans,
    throttles,
)
from raftctl.errors import ConfigError, KafkaError

pytestmark = pytest.mark.req("C7")
CURRENT: Plan = {("t", 0): (1, 2), ("t", 1): (2, 1), ("u", 0): (1,)}


def test_a_plan_is_read_back_as_it_was_written() -> None:
    text = json.dumps(plan_document(CURRENT))
    assert parse_plan(text, "f") == CURRENT
    assert json.loads(text)["partitions"][0] == {"topic": "t", "partition": 0, "replicas": [1, 2]}


@pytest.mark.parametrize("as_json", [True, False])
def test_what_generate_prints_is_a_plan(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    proposed: Plan = {("t", 0): (3, 4)}
    show_plans(Printer(output=Output.JSON if as_json else Output.TABLE), CURRENT, proposed)
    assert parse_plan(capsys.readouterr().out, "plan.json") == proposed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be an object"),
        ('{"version": 2, "partitions": []}', "version"),
        ('{"partitions": []}', "`partitions` must be a list"),
        ('{"partitions": [{"topic": "t"}]}', "`partition`"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "`partition`"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "`replicas` of t-0"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "broker ids"),
        (
            json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}),
            "t-0 stands there twice",
        ),
    ],
)
def test_bad_files_are_told_by_name(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_plan(text, "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert told in str(caught.value)


def test_topics_to_move() -> None:
    assert parse_topics('{"topics": [{"topic": "t"}, {"topic": "u"}], "version": 1}', "f") == [
        "t",
        "u",
    ]
    with pytest.raises(ConfigError):
        parse_topics('{"topics": [{"name": "t"}]}', "f")


def test_a_generated_plan_keeps_the_number_of_replicas_and_spreads_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = generate(CURRENT, racks, [4, 3, 2], random.Random(1))
    assert {key: len(replicas) for key, replicas in plan.items()} == {
        key: len(replicas) for key, replicas in CURRENT.items()
    }
    assert all(set(replicas) <= {2, 3, 4} for replicas in plan.values())
    for replicas in (plan["t", 0], plan["t", 1]):
        assert len({racks[one] for one in replicas}) == 2
    with pytest.raises(KafkaError):
        generate(CURRENT, racks, [4], random.Random(1))


def test_progress() -> None:
    plan: Plan = {("t", 0): (1, 2), ("t", 1): (3, 1), ("t", 2): (1,), ("u", 0): (2,)}
    assert progress(plan, CURRENT, [("t", 1)]) == {
        ("t", 0): "done",
        ("t", 1): "in progress",
        ("t", 2): "missing",
        ("u", 0): "differs",
    }


def test_old_replicas_send_and_new_ones_fetch_at_a_throttled_rate() -> None:
    assert throttles({("t", 0): (3, 2), ("t", 1): (2, 1)}, CURRENT) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2,1:2,1:1",
            "follower.replication.throttled.replicas": "0:3",
        }
    }
