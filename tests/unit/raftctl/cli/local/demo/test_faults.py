"""The fault plan against a scripted cluster: whom it kills, what it waits for."""

from __future__ import annotations

import time

import pytest

from raftctl.cli.local.demo import _faults as faults
from raftctl.cli.local.demo._faults import FaultPlan
from raftctl.errors import KafkaError
from raftctl.localcluster.layout import LocalNode, make_layout
from raftctl.localcluster.status import ClusterStatus
from tests.unit.raftctl.localcluster.stub_controller import answer, broker


class ScriptedCluster:
    """Recovers from each fault a few questions after it happened."""

    def __init__(self) -> None:
        self.layout = make_layout("id", [7101, 7102, 7103], [7001, 7002, 7003], {})
        self.log_hint = "the logs"
        self.done: list[str] = []
        self.asked_since = 0
        self.recovers = True

    def kill(self, node: LocalNode) -> None:
        self.done.append(f"kill {node.name}")
        self.asked_since = 0

    def start(self, node: LocalNode) -> None:
        self.done.append(f"start {node.name}")
        self.asked_since = 0

    def status(self, timeout_s: float) -> ClusterStatus:
        self.asked_since += 1
        told = self._leader() if self.recovers or not self.done else answer(102)
        return ClusterStatus({"a": told})

    def _leader(self) -> dict[str, object]:
        late = self.asked_since > 3
        brokers = [broker(1, leaders=1), broker(2, leaders=3), broker(3, leaders=2)]
        if len(self.done) == 0:
            return answer(101, role="leader", epoch=5, brokers=brokers)
        if len(self.done) == 1:
            if self.asked_since == 1:
                return answer(102, role="candidate", epoch=6)
            watermark = 41 if late else 40
            return answer(102, role="leader", epoch=6, high_watermark=watermark, brokers=brokers)
        if len(self.done) == 2:
            brokers[1]["leaders"], brokers[1]["fenced"] = (0, True) if late else (3, False)
            return answer(102, role="leader", epoch=6, brokers=brokers)
        return answer(
            102,
            role="leader",
            epoch=6,
            brokers=brokers,
            under_replicated_partitions=0 if late else 2,
        )


def test_kills_the_controller_then_the_busiest_leader_and_heals() -> None:
    cluster, told = ScriptedCluster(), list[str]()
    plan = FaultPlan(cluster, told.append)
    plan.start()
    times = plan.result()
    assert plan.is_done
    assert cluster.done == [
        "kill controller-101",
        "kill broker-2",
        "start controller-101",
        "start broker-2",
    ]
    assert (times.controller, times.broker) == ("controller-101", "broker-2")
    for seconds in (times.new_controller_s, times.new_leader_s, times.healed_s):
        assert seconds is not None
        # Three fruitless questions, 20 ms apart, come before each recovery.
        assert 0.05 < seconds < 10
    assert told[0] == "killed controller-101, the active controller"


def test_a_cluster_that_does_not_recover_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_RECOVERY_TIMEOUT_S", 0.1)
    cluster = ScriptedCluster()
    cluster.recovers = False
    plan = FaultPlan(cluster, lambda _: None)
    plan.start()
    with pytest.raises(KafkaError, match=r"waited 0\.1 s for a new controller: see the logs"):
        plan.result()


def test_a_cancelled_plan_does_nothing_more() -> None:
    cluster = ScriptedCluster()
    cluster.recovers = False
    plan = FaultPlan(cluster, lambda _: None)
    plan.start()
    plan.cancel()
    done = list(cluster.done)
    time.sleep(0.1)
    assert plan.is_done
    assert cluster.done == done
    assert len(done) <= 1
