"""Alerts: rules that Prometheus takes, which fire when they must, and not before or else."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import typer

from raftctl.cli.app import make_app
from tests.debian_programs import program
from tests.monitoring import strimzi
from tests.monitoring.alerts import ALERTS, RUNBOOK, Alert, rules, runbook
from tests.monitoring.definitions import ROOT
from tests.monitoring.promql import OF_TARGET, labels_of, problems, selectors

if TYPE_CHECKING:
    from pathlib import Path

STEP_S = 15
_SECONDS = {"s": 1, "m": 60, "h": 3600}
FIRST, SECOND = 'cluster="a",instance="n1"', 'cluster="a",instance="n2"'
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
OFFLINE = "kafka_controller_kafkacontroller_offlinepartitionscount"
UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"
FREE, SIZE = "raftctl_log_directory_available_bytes", "raftctl_log_directory_capacity_bytes"
IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
LATE = "raftctl_event_loop_lag_ms"
GROUP = 'kafka_consumergroup_lag_sum{cluster="a",consumergroup="g",topic="t",instance="n1"}'
DATA = 'cluster="a",instance="n1",path="/d"'


class Case(NamedTuple):
    """Series for which an alert fires, and for which it does not; values as promtool has them."""

    bad: dict[str, str]
    good: dict[str, str]


def steady(value: float) -> str:
    """The same value for a day."""
    return f"{value}+0x5760"


def of_nodes(metric: str, first: float, second: float) -> dict[str, str]:
    """A metric of two nodes."""
    return {f"{metric}{{{FIRST}}}": steady(first), f"{metric}{{{SECOND}}}": steady(second)}


def of_node(metric: str, value: float, labels: str = FIRST) -> dict[str, str]:
    """A metric of one node."""
    return {f"{metric}{{{labels}}}": steady(value)}


REPLICA = 'cluster="a",instance="n1",replica="3"'
NODE = f'{FIRST},job="raftctl"'
P99 = f'{FIRST},quantile="0.99"'
UNDER = "kafka_server_replicamanager_underreplicatedpartitions"
UNDER_MIN = "kafka_server_replicamanager_underminisrpartitioncount"
LEADER = "kafka_server_raftmetrics_current_leader"
FENCED = "kafka_controller_kafkacontroller_fencedbrokercount"
FAILED = "kafka_log_logmanager_offlinelogdirectorycount"
CASES = {
    # What concerns the cluster is served by the active controller alone: others say 0.
    "OfflinePartitions": Case(of_nodes(OFFLINE, 0, 2), of_nodes(OFFLINE, 0, 0)),
    "UnderMinIsrPartitions": Case(of_nodes(UNDER_MIN, 0, 1), of_nodes(UNDER_MIN, 0, 0)),
    "UnderReplicatedPartitions": Case(of_nodes(UNDER, 0, 1), of_nodes(UNDER, 0, 0)),
    "NoActiveController": Case(of_nodes(ACTIVE, 0, 0), of_nodes(ACTIVE, 0, 1)),
    "SeveralActiveControllers": Case(of_nodes(ACTIVE, 1, 1), of_nodes(ACTIVE, 0, 1)),
    # A node alone may have lost the others.
    "QuorumWithoutLeader": Case(of_nodes(LEADER, -1, -1), of_nodes(LEADER, -1, 2)),
    "ReplicaOfMetadataLags": Case(
        of_node("raftctl_raft_replica_lag", 1001, REPLICA),
        of_node("raftctl_raft_replica_lag", 1000, REPLICA),
    ),
    "OfflineLogDirectories": Case(of_nodes(FAILED, 0, 1), of_nodes(FAILED, 0, 0)),
    "UncleanLeaderElections": Case({f"{UNCLEAN}{{{FIRST}}}": "0 0 0 3+0x40"}, of_node(UNCLEAN, 3)),
    "FencedBrokers": Case(of_nodes(FENCED, 0, 1), of_nodes(FENCED, 0, 0)),
    # A lag that is large and falls is being worked off; a small one may grow.
    "ConsumerGroupLagGrows": Case({GROUP: "2000+1x400"}, {GROUP: "9000-1x400"}),
    "EventLoopLags": Case(of_node(LATE, 251, P99), of_node(LATE, 250, P99)),
    "RequestHandlersBusy": Case(of_node(IDLE, 0.09), of_node(IDLE, 0.1)),
    "DiskAlmostFull": Case(
        {**of_node(FREE, 14, DATA), **of_node(SIZE, 100, DATA)},
        {**of_node(FREE, 15, DATA), **of_node(SIZE, 100, DATA)},
    ),
    "DiskFillsWithinADay": Case(
        {f"{FREE}{{{DATA}}}": "9000-2x2000"}, {f"{FREE}{{{DATA}}}": "900000-1x2000"}
    ),
    "NodeDown": Case(of_node("up", 0, NODE), of_node("up", 1, NODE)),
    "ScrapeSlow": Case(
        of_node("scrape_duration_seconds", 1.1, NODE), of_node("scrape_duration_seconds", 1, NODE)
    ),
}


def seconds(duration: str) -> int:
    """Of a duration like `5m`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def promtool(*arguments: str | Path) -> None:
    """Runs promtool; fails with what it wrote if it finds something wrong."""
    done = subprocess.run(
        [str(program("promtool")), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_its_cases() -> None:
    assert [alert.name for alert in ALERTS] == list(CASES)


@pytest.mark.req("O5")
def test_alerts_read_what_nodes_serve() -> None:
    expressions = [alert.expression for alert in ALERTS]
    assert [found for expression in expressions for found in problems(expression)] == []


@pytest.mark.req("O5")
def test_what_is_recorded_for_strimzi_reads_what_nodes_serve() -> None:
    read = [one for rule in strimzi.RECORDED for one in selectors(rule.expression)]
    assert [one for one in read if labels_of(one.name) is None] == []


@pytest.mark.req("O5", "N4")
def test_nodes_serve_what_strimzi_reads() -> None:
    """What the expressions themselves say, a real Prometheus checks: `tests/peers`."""
    recorded = {rule.series for rule in strimzi.RECORDED}
    for needs in strimzi.NEEDS.values():
        for need in needs:
            if need.series not in recorded:
                has = labels_of(need.series)
                assert has is not None, need
                assert set(need.labels.split()) <= has | strimzi.OF_TARGET, need


@pytest.mark.req("O5")
def test_promtool_takes_the_rules() -> None:
    operate = ROOT / "docs" / "operate"
    promtool("check", "rules", operate / "alerts.yml", operate / "strimzi.yml")


@pytest.mark.req("O5")
def test_promtool_takes_the_configurations_of_the_how_to(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    configurations = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(configurations) >= 3
    for text in configurations:
        path = tmp_path / "prometheus.yml"
        path.write_text(text)
        promtool("check", "config", "--syntax-only", path)


@pytest.mark.req("O5")
def test_alerts_fire_after_their_time_and_else_not(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(rules())
    tests = [test for alert in ALERTS for test in checks(alert)]
    path = tmp_path / "test.yml"
    path.write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": tests}))
    promtool("test", "rules", path)


def checks(alert: Alert) -> list[dict[str, Any]]:
    """What promtool is to find: an alert fires once its time is over, not before, and ends."""
    wait, case = seconds(alert.lasts), CASES[alert.name]
    warm = 2 * STEP_S if alert.name != "DiskFillsWithinADay" else 40 * 60
    at = {"bad": [(wait + warm + 2 * STEP_S, 1)], "good": [(wait + warm + 2 * STEP_S, 0)]}
    if wait > STEP_S:
        at["bad"].append((wait - STEP_S, 0))
    return [
        {
            "name": f"{alert.name} {name}",
            "interval": f"{STEP_S}s",
            "input_series": [
                {"series": series, "values": values}
                for series, values in getattr(case, name).items()
            ],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert.name}",alertstate="firing"}})'
                    " or vector(0)",
                    "eval_time": f"{time_s}s",
                    "exp_samples": [{"labels": "{}", "value": number}],
                }
                for time_s, number in moments
            ],
        }
        for name, moments in at.items()
    ]


def test_a_summary_names_labels_that_its_alert_has() -> None:
    for alert in ALERTS:
        by = re.search(r"by \(([^)]*)\)", alert.expression)
        has = set(by[1].split(", ")) if by else OF_TARGET
        for selector in selectors(alert.expression):
            has = has if by else has.union(labels_of(selector.name) or ())
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= has, alert.name


def test_the_runbook_has_a_section_for_each_alert() -> None:
    sections = re.findall(r"^## (\w+)$", runbook(), re.MULTILINE)
    assert sorted(sections) == sorted(alert.name for alert in ALERTS)
    assert {alert.anchor for alert in ALERTS} == {f"{RUNBOOK}#{name.lower()}" for name in sections}


def test_the_runbook_names_commands_that_there_are() -> None:
    for line in re.findall(r"`raftctl ([^`]+)`", runbook()):
        command: Any = typer.main.get_command(make_app())
        words = line.split()
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        options = {name for one in command.params for name in one.opts}
        assert {word for word in words if word.startswith("--")} <= options, line
