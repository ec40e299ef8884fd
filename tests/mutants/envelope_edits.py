"""Small edits of envelopes and of the console's actions, each with the test that notices it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_ENVELOPES = "unit/broker/envelopes/test_envelopes.py::test_"
_RECORDS = "unit/broker/envelopes/test_records.py::test_"
_CONSOLE = "unit/raftctl/console/test_"
_SERVER = "broker.envelopes._server:"

EDITS = (
    Edit(
        "anybody_sends_envelopes",
        f"{_SERVER}Envelopes._open",
        "if self._authorizer is not None and not",
        "if self._authorizer is None and not",
        f"{_ENVELOPES}only_who_may_act_for_the_cluster_sends_envelopes",
    ),
    Edit(
        "sender_is_the_requester",
        f"{_SERVER}Envelopes._open",
        'self._local.answer(bytes(body["request_data"]), requester, request_id)',
        'self._local.answer(bytes(body["request_data"]), sender, request_id)',
        f"{_ENVELOPES}a_broker_answers_as_it_answers_the_requester[False]",
    ),
    Edit(
        "request_in_an_envelope_has_another_id",
        f"{_SERVER}Envelopes.serve",
        "named if is_request_id(named) else context.request_id",
        "context.request_id",
        f"{_ENVELOPES}a_request_keeps_its_id_on_the_broker_that_answers[False]",
    ),
    Edit(
        "logins_travel_in_envelopes",
        f"{_SERVER}LocalBroker.answer",
        "if header.api_key not in CARRIED:",
        "if False:",
        f"{_ENVELOPES}what_belongs_to_a_connection_is_not_carried[SASL_AUTHENTICATE]",
    ),
    Edit(
        "envelope_of_any_size",
        f"{_SERVER}LocalBroker.answer",
        "if len(request) > REQUEST_BYTES_MAX:",
        "if False:",
        f"{_ENVELOPES}a_bad_envelope_is_refused_and_the_connection_goes_on[change10-10]",
    ),
    Edit(
        "batch_of_any_size_is_sent",
        "broker.apis.data._fetch:_cut",
        "whole = len(piece) <= size",
        "whole = True",
        f"{_ENVELOPES}a_batch_larger_than_an_answer_is_cut",
    ),
    Edit(
        "quota_of_the_requester_does_not_hold",
        "broker.envelopes._client:EnvelopeClient._check_quota",
        "if left_s > 0:",
        "if False:",
        f"{_ENVELOPES}a_quota_has_the_requester_wait_and_nobody_else",
    ),
    Edit(
        "many_bombs_are_opened_at_once",
        "broker.envelopes._records:read_batches",
        "opened += size",
        "pass",
        f"{_RECORDS}bombs_are_not_opened_and_many_are_not_tried_at_once[1]",
    ),
    Edit(
        "answers_are_shared_by_requesters",
        "console.brokers._groups:GroupViews.groups",
        "self._recent.get(requester, lambda",
        "self._recent.get(None, lambda",
        f"{_CONSOLE}groups.py::test_a_list_is_asked_for_once_a_second_for_each_requester",
    ),
    Edit(
        "attended_transactions_hang",
        "hanging_transactions:hanging",
        "not in attended",
        "not in ()",
        f"{_CONSOLE}transactions.py::test_what_hangs_is_old_and_attended_by_nobody",
    ),
    Edit(
        "silent_coordinator_knows_nothing",
        "console.brokers._transactions:TransactionViews._attended",
        "if listed.failures:",
        "if False:",
        f"{_CONSOLE}transactions.py::"
        "test_nobody_is_shown_as_hanging_while_a_coordinator_does_not_answer",
    ),
    Edit(
        "aborted_records_are_committed",
        "console.brokers._messages:_Aborted.hides",
        "batch.is_transactional and batch.producer_id in self._open",
        "False",
        f"{_CONSOLE}messages.py::"
        "test_what_was_aborted_is_left_out_for_readers_of_committed_records",
    ),
    Edit(
        "names_of_topics_are_found_by_who_may_not_read",
        "console.brokers._messages:MessageViews.messages",
        "asked.rights.require(Operation.READ, ResourceType.TOPIC, name)",
        "pass",
        f"{_CONSOLE}messages.py::test_who_may_not_read_learns_nothing",
    ),
    Edit(
        "unknown_fields_of_an_action_are_ignored",
        "console.actions._actions:Actions.act",
        "asked.fields.end()",
        "pass",
        f"{_CONSOLE}actions.py::test_a_field_that_is_not_known_does_nothing[delete-topic 1]",
    ),
    Edit(
        "failed_actions_have_no_line",
        "console.actions._actions:Actions.act",
        "result = error.code.name",
        "result = ErrorCode.NONE.name",
        f"{_CONSOLE}actions.py::test_an_action_in_doubt_says_so_and_is_in_the_log",
    ),
    Edit(
        "offsets_of_working_members_are_reset",
        "console.actions._groups:reset_offsets",
        'if found["members"]:',
        "if False:",
        f"{_CONSOLE}actions.py::test_offsets_of_a_group_with_members_stay",
    ),
    Edit(
        "marker_of_no_producer",
        "broker.apis.transactional._transaction_admin:handle_markers",
        "if any(marker.producer_id < 0 for _, marker in entries):",
        "if False:",
        "unit/broker/apis/test_transactions.py::test_a_marker_of_no_producer_is_refused",
    ),
)
