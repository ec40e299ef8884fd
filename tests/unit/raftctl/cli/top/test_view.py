"""From answers of nodes to the rows of `raftctl top`."""

from __future__ import annotations

from typing import Any

import pytest

from raftctl.cli.top._scrape import Scrape, parse, rate
from raftctl.cli.top._view import Answer, BrokerRow, GroupRow, Node, TopicRow, View, make_view
from raftctl.errors import ConfigError
from tests.unit.raftctl.cli.top.answers import BROKER_1, BROKER_2, CONTROLLER, answers, status

pytestmark = pytest.mark.req("O2")


def test_rates_are_those_between_two_rounds() -> None:
    view = make_view(answers(10.0, 5_000), answers(8.0, 1_000))
    one, two = view.brokers
    assert one == BrokerRow(
        broker_id=1,
        state="active",
        leaders=2,
        replicas=3,
        bytes_in=2_000.0,
        bytes_out=0.0,
        requests=4.0,
        connections=7,
        log_size=4_096,
        loop_lag_ms=1.5,
        memory=100,
        metadata_lag=0,
    )
    assert (two.state, two.bytes_in, two.requests) == ("fenced", 2_000.0, 4.0)
    assert view.bytes_in == 4_000.0
    assert view.traffic == (
        TopicRow("logs", 0.0, 0.0, 0.0, 6_000),
        TopicRow("orders", 4_000.0, 0.0, 40.0, 2_192),
    )


def test_without_an_earlier_round_rates_are_not_known() -> None:
    view = make_view(answers(10.0, 5_000))
    assert view.brokers[0].bytes_in is None
    assert view.bytes_in is None
    assert view.brokers[0].connections == 7


def test_a_counter_that_went_back_is_of_a_node_that_started_again() -> None:
    view = make_view(answers(10.0, 10), answers(8.0, 1_000))
    assert view.brokers[0].bytes_in is None
    assert {row.bytes_in for row in view.traffic} == {0.0}


def test_the_active_controller_is_believed() -> None:
    old = Answer(Node(102, True, "h:2"), status(node_id=102, role="leader", epoch=3, leader_id=102))
    view = make_view([old, *answers(10.0, 1)])
    assert (view.leader_id, view.epoch, view.partitions) == (101, 4, 5)
    roles = {row.node_id: (row.role, row.lag) for row in view.quorum}
    assert roles == {101: ("leader", 0), 102: ("leader", 7), 103: ("voter", None)}


def test_a_silent_node_is_named_and_its_row_stays() -> None:
    round_ = answers(10.0, 1)
    round_[1] = Answer(BROKER_1, why="timed out")
    view = make_view(round_)
    assert view.silent == ("broker 1 (h:9095) is silent: timed out",)
    assert (view.brokers[0].state, view.brokers[0].leaders) == ("silent", 2)
    assert view.brokers[0].connections is None
    nobody = make_view([Answer(one.node, why="refused") for one in round_])
    assert (nobody.leader_id, nobody.partitions) == (None, None)
    assert [row.role for row in nobody.quorum] == ["silent"]
    assert [row.state for row in nobody.brokers] == ["silent", "silent"]
    assert make_view([]) == View()


def test_partitions_in_trouble_are_listed_with_the_worst_of_it() -> None:
    view = make_view(answers(10.0, 1))
    assert [(one.topic, one.partition, one.what) for one in view.trouble] == [
        ("orders", 1, "under-replicated"),
        ("orders", 10, "under min.insync.replicas"),
    ]


def test_groups_have_the_lag_of_their_topics_together() -> None:
    assert make_view(answers(10.0, 1)).groups == (
        GroupRow("g", 42, 2, 3),
        GroupRow("idle", 0, 0, 0),
    )


def test_a_scrape_knows_labels_that_are_absent_from_those_that_are_empty() -> None:
    scrape = parse('a{topic="t"} 1\na{topic=""} 2\na 4\n', 1.0)
    assert scrape.total("a") == 7
    assert scrape.total("a", topic="") == 6
    assert scrape.total("b") is None
    assert scrape.by("a", "topic") == {("t",): 1}
    assert rate(scrape, Scrape(1.0, scrape.series), "a") is None


@pytest.mark.parametrize("text", ["", "h:1", "x@h:1", "1@h", "1@h:0", "²@h:1"])
def test_nodes_are_named_by_id_and_address(text: str) -> None:
    from raftctl.cli.top._nodes import parse_nodes

    with pytest.raises(ConfigError, match="--nodes"):
        parse_nodes(text)
    assert parse_nodes("1@h:9095, 2@h:9096")[1].address == "h:9096"


def test_the_document_is_json() -> None:
    import dataclasses
    import json

    document: dict[str, Any] = dataclasses.asdict(make_view(answers(10.0, 5), answers(8.0, 1)))
    assert json.loads(json.dumps(document))["brokers"][1]["state"] == "fenced"
    assert CONTROLLER.name == "controller 101 (h:9093)"
    assert BROKER_2.name == "broker 2 (h:9096)"
