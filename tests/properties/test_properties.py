"""A few dozen of the sequences that `make properties` runs by the thousand."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.machine import ModelMachine


@pytest.mark.req("C1", "C3", "C6", "C9", "C10", "C11", "C12")
def test_requests_failovers_and_snapshots_do_what_the_model_does() -> None:
    budget = settings(max_examples=30, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(ModelMachine, settings=budget)
