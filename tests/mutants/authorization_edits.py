"""Small edits of what handlers ask an authorizer, each with the test that misses the question."""

from __future__ import annotations

from tests.mutants.edit import Edit

_APIS = "unit/broker/apis/"
_ROWS = f"{_APIS}test_api_rights.py::test_a_right_that_is_missing_shows_where_apache_kafka_shows_it"

EDITS = (
    Edit(
        "commit_of_offsets_asks_about_the_group_alone",
        "broker.apis.consumer._group_offsets:handle_commit",
        'denied = _denied(context, request, Operation.READ, body["topics"])',
        "denied = frozenset()",
        f"{_APIS}test_api_rights.py::test_nothing_of_what_is_denied_is_committed",
    ),
    Edit(
        "commit_of_offsets_asks_about_topics_alone",
        "broker.apis.consumer._group_offsets:handle_commit",
        "require_member(context, request)",
        "pass",
        f"{_ROWS}[OFFSET_COMMIT-READ-GROUP-all]",
    ),
    Edit(
        "anybody_follows",
        "broker.apis.data._fetch:_may_follow",
        "return is_allowed(context, request, action, cluster, CLUSTER_NAME)",
        "return True",
        f"{_APIS}test_record_rights.py::test_a_follower_without_the_right_is_not_seen_to_follow",
    ),
    Edit(
        "follower_that_lost_its_right_is_refused_what_is_dirty_alone",
        "broker.apis.data._fetch:handle",
        "turn = turn.of_all()",
        "pass",
        f"{_APIS}test_record_rights.py"
        "::test_a_follower_that_loses_the_right_is_refused_every_partition_of_its_session",
    ),
    Edit(
        "records_that_come_later_are_not_authorized",
        "broker.apis.data._fetch:handle",
        "if added and context.authorizer is not None:",
        "if False:",
        f"{_APIS}test_record_rights.py"
        "::test_records_that_come_while_a_fetch_waits_are_authorized_as_well",
    ),
    Edit(
        "session_goes_on_for_anybody",
        "broker.apis.handler.fetch_sessions:FetchSessions._continue",
        "session is None or session.owner != request.owner",
        "session is None",
        f"{_APIS}test_record_rights.py::test_a_session_is_of_the_principal_that_has_opened_it",
    ),
    Edit(
        "session_is_ended_by_anybody",
        "broker.apis.handler.fetch_sessions:FetchSessions._begin",
        "ended is not None and ended.owner == request.owner",
        "ended is not None",
        f"{_APIS}test_record_rights.py::test_a_session_is_of_the_principal_that_has_opened_it",
    ),
    Edit(
        "rule_that_changes_does_not_reach_a_session",
        "broker.apis.handler.fetch_sessions:FetchSession.update",
        "or request.rules is not self.rules",
        "or False",
        f"{_APIS}test_record_rights.py"
        "::test_a_right_that_is_taken_away_shows_at_the_next_fetch_of_a_session",
    ),
    Edit(
        "denied_records_are_appended",
        "broker.apis.data._produce:_held",
        "if index in denied:",
        "if False:",
        f"{_APIS}test_record_rights.py"
        "::test_records_that_may_not_be_written_are_neither_looked_at_nor_appended",
    ),
    Edit(
        "denied_records_are_unpacked",
        "broker.apis.data._produce:handle",
        'entries[index] = (entries[index][0], b"")',
        "pass",
        f"{_APIS}test_record_rights.py"
        "::test_records_that_may_not_be_written_are_neither_looked_at_nor_appended",
    ),
    Edit(
        "transactional_id_is_anybodys",
        "broker.apis.data._produce:_denied",
        "require(context, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)",
        "pass",
        f"{_ROWS}[PRODUCE-WRITE-TRANSACTIONAL_ID-all]",
    ),
    Edit(
        "either_right_to_a_producer_id_becomes_both",
        "broker.apis.transactional._transactions:_may_be_idempotent",
        "return is_allowed_somewhere(context, request, Operation.WRITE, ResourceType.TOPIC)",
        "return False",
        f"{_APIS}test_api_rights.py::test_one_of_two_rights_is_enough[producer-id]",
    ),
    Edit(
        "anybody_verifies_as_a_broker",
        "broker.apis.transactional._transactions:handle_add_partitions",
        "require(context, request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)",
        "pass",
        f"{_ROWS}[ADD_PARTITIONS_TO_TXN-CLUSTER_ACTION-CLUSTER-range(4, 6)]",
    ),
    Edit(
        "group_is_described_with_its_hidden_topics",
        "broker.apis.consumer._group_admin:_check_topics",
        "if context.authorizer is None:",
        "if True:",
        f"{_APIS}test_api_rights.py"
        "::test_a_group_is_hidden_from_who_may_not_describe_a_topic_of_its_members",
    ),
    Edit(
        "all_groups_are_listed",
        "broker.apis.consumer._group_admin:handle_list",
        "found if sees_all else _described(context, request, found)",
        "found",
        f"{_APIS}test_api_rights.py::test_groups_that_may_not_be_described_are_not_listed",
    ),
    Edit(
        "expression_stands_for_hidden_topics",
        "broker.groups.consumer._consumer_groups:_matching",
        "names if may_describe is None else tuple(filter(may_describe, names))",
        "names",
        "unit/broker/groups/test_consumer_groups.py"
        "::test_an_expression_stands_for_topics_that_the_member_may_describe",
    ),
)
