"""Whatever brokers, administrators and failovers do: what must hold after every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from raftctl.errors import ErrorCode
from tests.unit.raftctl.controller.machine import ControllerMachine, SlowControllerMachine


@pytest.mark.req("C1", "C5", "C6", "C10", "C14")
def test_random_operations_and_failovers() -> None:
    budget = settings(max_examples=40, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(ControllerMachine, settings=budget)


@pytest.mark.req("C7", "C14")
def test_a_replica_in_a_directory_that_is_not_there_was_all_a_reassignment_waited_for() -> None:
    """An unclean election of the only replica that stays ends it: the broker has none any more."""
    machine = SlowControllerMachine()
    machine.restart(broker_id=1)
    machine.restart(broker_id=3)
    machine.wait(elapsed_ms=100)
    machine.directory_fails(broker_id=1, disk=1)
    machine.configure(name="b", min_isr="1", unclean=True)
    machine.reassign(name="b", replicas=[1])
    machine.assign_directory(broker_id=2, name="b", disk=1)
    assert machine.said == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    partition = machine.cluster.partition("b")
    assert (partition.replicas, partition.removing_replicas) == ((1,), ())
    assert partition.leader == 1


@pytest.mark.req("C2", "C5", "C13")
def test_random_operations_while_partitions_are_reconciled_in_slices() -> None:
    budget = settings(max_examples=40, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(SlowControllerMachine, settings=budget)
