"""Whatever brokers, administrators and failovers do: what must hold after every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.controller.machine import ControllerMachine, SlowControllerMachine


@pytest.mark.req("C1", "C5", "C6", "C10", "C14")
def test_random_operations_and_failovers() -> None:
    budget = settings(max_examples=40, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(ControllerMachine, settings=budget)


@pytest.mark.req("C2", "C5", "C13")
def test_random_operations_while_partitions_are_settled_in_slices() -> None:
    budget = settings(max_examples=40, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(SlowControllerMachine, settings=budget)
