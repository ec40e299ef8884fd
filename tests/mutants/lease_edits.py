"""Small edits of leases, each with the test that notices it."""

from __future__ import annotations

from tests.mutants.edit import Edit

EDITS = (
    Edit(
        "session_counted_from_the_answer",
        "client._session:Session._keep",
        "lease_ends(sent_at,",
        "lease_ends(lease_time(loop),",
        "unit/raftctl/client/test_client.py::test_a_session_is_counted_from_the_question",
    ),
    Edit(
        "session_opened_counted_from_the_answer",
        "client._session:Session.__aenter__",
        "lease_ends(sent_at,",
        "lease_ends(lease_time(loop),",
        "unit/raftctl/client/test_client.py::test_a_session_is_counted_from_the_question",
    ),
    Edit(
        "held_up_holder_believes",
        "client._session:Session.is_open",
        " and lease_time(asyncio.get_running_loop()) < self.open_until",
        "",
        "unit/raftctl/client/test_client.py::test_a_program_that_was_held_up_believes_nothing",
    ),
    Edit(
        "lease_without_margin",
        "runtime.lease_clock:lease_ends",
        "(1 - CLOCK_MARGIN)",
        "(1 + CLOCK_MARGIN)",
        "unit/raftctl/client/test_client.py::test_a_session_that_nobody_answers_is_lost_before_the_controllers_end_it",
    ),
)
