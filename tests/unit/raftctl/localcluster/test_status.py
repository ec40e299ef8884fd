"""Asking controllers, believing the right one, showing the result."""

from __future__ import annotations

import json

import pytest

from raftctl.cli.local.cluster import status_document, status_text
from raftctl.cli.main import run
from raftctl.localcluster.status import ClusterStatus, ask_controller, ask_controllers
from tests.unit.raftctl.localcluster.stub_controller import answer, broker, controller

NOBODY = "127.0.0.1:1"
LEADER = answer(
    101,
    role="leader",
    voters=[
        {
            "node_id": 102,
            "log_end_offset": 38,
            "lag": 3,
            "last_fetch_age_ms": 12,
            "last_caught_up_age_ms": 99,
        }
    ],
    observers=[
        {
            "node_id": 2,
            "log_end_offset": 34,
            "lag": 7,
            "last_fetch_age_ms": 1,
            "last_caught_up_age_ms": None,
        }
    ],
    brokers=[broker(1), broker(2, fenced=True, leaders=0)],
)


def test_the_active_controller_is_believed_and_the_dead_are_shown() -> None:
    with controller(lambda: answer(102)) as follower, controller(lambda: LEADER) as leader:
        status = ask_controllers([follower, leader, NOBODY])
    assert status.leader == LEADER
    assert status.active_brokers == [1]
    assert status.answers[NOBODY] is None


def test_a_deposed_leader_is_not_believed() -> None:
    old, new = answer(101, role="leader", epoch=5), answer(102, epoch=6)
    status = ClusterStatus({"a": old, "b": new})
    assert status.best == new
    assert status.leader is None


@pytest.mark.parametrize("reply", [[], "text", {"epoch": 1}, None])
def test_nonsense_is_no_answer(reply: object) -> None:
    with controller(lambda: reply) as address:
        assert ask_controller(address) is None


def test_an_error_is_no_answer() -> None:
    with controller(lambda: LEADER, status=503) as address:
        assert ask_controller(address) is None


@pytest.mark.req("A2")
def test_text_for_people() -> None:
    addresses = {"controller-101": "a", "controller-102": "b", "controller-103": "c"}
    status = ClusterStatus({"a": LEADER, "b": answer(102), "c": None})
    lines = status_text(addresses, status).splitlines()
    assert lines[0] == (
        "leader 101, epoch 5, 2/3 controllers answer, 2 topics, 7 partitions, 0 offline, "
        "1 under-replicated"
    )
    table = [line.split() for line in lines]
    assert ["controller-102", "b", "follower", "5", "40", "41", "3", "12", "99"] in table
    assert ["controller-103", "c", "down", *["-"] * 6] in table
    assert ["2", "PLAINTEXT://127.0.0.1:9002", "fenced", "0", "3", "7"] in table
    local = status_text(addresses, status, {"broker-2": "127.0.0.1:9202"}).splitlines()
    row = ["2", "PLAINTEXT://127.0.0.1:9002", "fenced", "0", "3", "7", "127.0.0.1:9202"]
    assert row in [line.split() for line in local]


def test_document_when_nobody_answers() -> None:
    document = status_document({"x": "a"}, ClusterStatus({"a": None}))
    assert document["has_leader"] is False
    assert document["quorum"] is None
    assert document["controllers"][0]["role"] is None


@pytest.mark.req("A2")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with controller(lambda: LEADER) as address:
        asked = ["status", "--controllers", f"{address},{NOBODY}"]
        assert run([*asked, "--output", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["quorum"]["leader_id"] == 101
        assert document["health"]["under_replicated_partitions"] == 1
        assert run(asked) == 0
        assert capsys.readouterr().out.startswith("leader 101")
    assert run(["status", "--controllers", NOBODY]) == 1
    assert run(["status", "--controllers", "nonsense"]) == 2
    assert "--controllers nonsense: write host:port" in capsys.readouterr().err
