"""Small edits of the harness on secured clusters, each with the test that must notice."""

from __future__ import annotations

from tests.mutants.edit import Edit

_FAULTS = "jepsen.nemesis._security:SecurityFaults."
_FAULTS_TEST = "unit/jepsen/nemesis/test_security_faults.py::test_"
_LOCAL = "jepsen.environments.local.security:LocalSecurity."
_LOCAL_TEST = "unit/jepsen/environments/test_local_security.py::test_"
_AIO = "jepsen.workloads.sessions._aio:AioSession."
_SESSIONS_TEST = "unit/jepsen/workloads/test_secured_sessions.py::test_"

EDITS = (
    Edit(
        "certificate_that_nobody_serves_is_a_fault",
        f"{_FAULTS}renew",
        "strict=True) if done]",
        "strict=True) if done or True]",
        f"{_FAULTS_TEST}certificates_count_for_the_nodes_that_serve_them",
    ),
    Edit(
        "password_that_no_broker_has_is_a_fault",
        f"{_FAULTS}change_password",
        "return [access.user] if await _becomes(partial(_is_changed, access)) else []",
        "return [access.user]",
        f"{_FAULTS_TEST}a_password_counts_where_the_one_before_is_refused",
    ),
    Edit(
        "rules_that_every_broker_has_still_are_a_fault",
        f"{_FAULTS}revoke",
        "if gone and rules else",
        "if rules else",
        f"{_FAULTS_TEST}rights_that_no_broker_has_lost_are_no_fault",
    ),
    Edit(
        "end_of_a_test_forgets_what_may_come_late",
        f"{_FAULTS}change_password",
        "access = self._access",
        "access = self._access\n    self._is_in_doubt = False",
        f"{_FAULTS_TEST}what_may_come_late_is_made_good_although_a_later_change_was_acknowledged",
    ),
    Edit(
        "keys_stay_after_the_cluster",
        f"{_LOCAL}remove",
        "shutil.rmtree(self._directory, ignore_errors=True)",
        "pass",
        f"{_LOCAL_TEST}the_configuration_is_one_that_nodes_take_and_has_no_secret[controller]",
    ),
    Edit(
        "certificate_of_before_is_taken_for_a_new_one",
        f"{_LOCAL}renew",
        "!= der for port",
        "is None for port",
        f"{_LOCAL_TEST}a_node_that_keeps_its_certificate_has_no_fault",
    ),
    Edit(
        "refused_record_has_certainly_failed",
        f"{_AIO}send",
        "with _session_errors(REFUSED):",
        "with _session_errors():",
        f"{_SESSIONS_TEST}a_refusal_is_certain_only_before_anything_was_sent[refused_by_an_answer-False]",
    ),
    Edit(
        "client_keeps_its_first_password",
        f"{_AIO}_take_password",
        "if client is not None and self._options.entrance.generation:",
        "if client is None:",
        f"{_SESSIONS_TEST}aiokafka_logs_in_with_the_newest_password",
    ),
    Edit(
        "dead_producer_stays",
        f"{_AIO}_started_producer",
        "self._producer._sender.sender_task.done()",
        "self._producer._sender.sender_task.cancelled()",
        f"{_SESSIONS_TEST}a_producer_that_sends_no_more_is_replaced",
    ),
)
