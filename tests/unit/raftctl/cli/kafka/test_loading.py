"""Commands that ask a coordinator which still loads its partition."""

from __future__ import annotations

import pytest
from kafka.errors import CoordinatorLoadInProgressError

from raftctl.cli._output import Output
from raftctl.cli.kafka.admin import Cluster

pytestmark = pytest.mark.req("A1", "T3")


class Coordinator:
    """Refuses so many calls, then answers."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def call(self) -> str:
        if self.refusals:
            self.refusals -= 1
            raise CoordinatorLoadInProgressError
        return "loaded"


def _cluster(timeout: float) -> Cluster:
    return Cluster(bootstrap_server="127.0.0.1:1", timeout=timeout, output=Output.JSON)


def test_a_coordinator_that_loads_is_asked_again() -> None:
    coordinator = Coordinator(2)
    assert _cluster(60.0).once_loaded(coordinator.call) == "loaded"
    assert coordinator.refusals == 0


def test_after_the_timeout_its_refusal_stands() -> None:
    with pytest.raises(CoordinatorLoadInProgressError):
        _cluster(0.001).once_loaded(Coordinator(1_000).call)
