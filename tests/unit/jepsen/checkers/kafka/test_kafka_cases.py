"""The anomalies that other checkers have found in small histories of logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.kafka import check_kafka
from jepsen.checkers.kafka.log import version_order
from jepsen.history import Op, OpType

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.checkers.verdict import Anomaly

pytestmark = pytest.mark.req("J4")
NOT_VERDICTS = {"op-max-offsets", "gen-poll-unseen", "last-index-values", "version-order-conflict"}
"""What they say is no verdict on a history, or is asked of one below."""
REFERENCES = {"writer", "reader", "max-read", "ops", "op"}


def cases(histories: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((histories / "kafka" / "cases.json").read_text())
    return {case["id"]: case for case in found}


def history_of(case: dict[str, Any]) -> tuple[list[Op], list[str]]:
    """The history, and the label of each of its lines."""
    lines: list[Op] = []
    for op in case["history"]:
        index = len(lines)
        kind = OpType(op["type"])
        lines.append(Op(index, op.get("time", index), op["process"], kind, op["f"], op["value"]))
    return lines, [op["label"] for op in case["history"]]


def named(value: Any, labels: list[str]) -> Any:
    return [labels[one] for one in value] if isinstance(value, list) else labels[value]


def told(anomaly: Anomaly, wanted: dict[str, Any], labels: list[str]) -> dict[str, Any]:
    """What the anomaly says of what is asked, lines by their labels."""
    return {
        field: named(anomaly.detail[field], labels)
        if field in REFERENCES
        else anomaly.detail[field]
        for field in wanted
    }


def test_the_anomalies_are_the_expected_ones(histories: Path) -> None:
    judged = 0
    for name, case in cases(histories).items():
        if name in NOT_VERDICTS:
            continue
        history, labels = history_of(case)
        verdict = check_kafka(history, ww_deps=case["options"].get("ww_deps", False))
        found = [*verdict.anomalies, *verdict.notes]
        for kind, wanted in case["expect"].items():
            judge = {
                "ALL": nothing_at_all,
                "valid": not_valid,
                "unseen": unseen_in_the_end,
                "version_order_errors": inconsistent,
                "G1c": same_cycle,
            }.get(kind, same_anomalies)
            judge(kind, wanted, found, labels)
            judged += 1
        if case["expect"].get("valid"):
            assert verdict.valid is not True
    assert judged >= 25


def nothing_at_all(kind: str, wanted: Any, found: list[Anomaly], labels: list[str]) -> None:
    assert found == []


def not_valid(kind: str, wanted: Any, found: list[Anomaly], labels: list[str]) -> None:
    assert wanted == "not true"


def unseen_in_the_end(kind: str, wanted: Any, found: list[Anomaly], labels: list[str]) -> None:
    missing = {one.detail["key"]: one.detail["count"] for one in found if one.name == kind}
    assert missing == {key: count for key, count in wanted[-1]["unseen"].items() if count}


def inconsistent(kind: str, wanted: Any, found: list[Anomaly], labels: list[str]) -> None:
    same_anomalies("inconsistent-offsets", wanted, found, labels)


def same_cycle(kind: str, wanted: Any, found: list[Anomaly], labels: list[str]) -> None:
    (one,) = (anomaly for anomaly in found if anomaly.name == kind)
    assert set(named(one.detail["cycle"], labels)) == set(wanted[0]["cycle"])
    assert sorted(one.detail["steps"]) == sorted(wanted[0]["steps"])


def same_anomalies(kind: str, wanted: Any, found: list[Anomaly], labels: list[str]) -> None:
    mine = [anomaly for anomaly in found if anomaly.name == kind]
    if wanted is None:
        assert mine == []
    elif isinstance(wanted, dict):
        assert sorted(one.detail["value"] for one in mine) == wanted["values_exactly"]
    else:
        assert len(mine) == len(wanted), kind
        for one in wanted:
            assert one in [told(anomaly, one, labels) for anomaly in mine]


def test_the_last_place_of_a_value_counts(histories: Path) -> None:
    expect = cases(histories)["last-index-values"]["expect"]
    order = version_order({at: set(vs) for at, vs in enumerate(expect["in"]) if vs})
    for index, values in enumerate(expect["out"]):
        assert {v for v, at in order.index_of.items() if at == index} == set(values or ())


def test_an_unknown_transaction_that_was_seen_counts(histories: Path) -> None:
    case = cases(histories)["version-order-conflict"]
    lines = [
        Op(2 * at + half, 2 * at + half, op.process, kind, op.f, op.value if half else None)
        for at, op in enumerate(history_of(case)[0])
        for half, kind in enumerate((OpType.INVOKE, op.type))
    ]
    found = check_kafka(lines).anomalies
    conflicts = [dict(one.detail) for one in found if one.name == "inconsistent-offsets"]
    assert conflicts == case["expect"]["version_order_errors"]
