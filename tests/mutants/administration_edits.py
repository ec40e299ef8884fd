"""Small edits of who may administer and discover, each with its test."""

from __future__ import annotations

from tests.mutants.edit import Edit

_NODE = "unit/raftctl/node/"
_APIS = "unit/broker/apis/"

EDITS = (
    Edit(
        "node_keeps_its_authorizer_from_the_controller",
        "node._node:Node._start_controller",
        "authorizer=self.authorizer",
        "authorizer=None",
        f"{_NODE}test_authorized_nodes.py::test_a_controller_decides_by_the_rules_that_are_committed",
    ),
    Edit(
        "controller_asks_no_authorizer",
        "node._controller_service:ControllerService._answer",
        "screen(self._authorizer, ",
        "screen(None, ",
        f"{_NODE}test_controller_service.py::test_what_the_requester_may_not_do_is_not_decided",
    ),
    Edit(
        "controller_forgets_what_was_denied",
        "node._controller_service:ControllerService._answer",
        "allowed.complete(result.response_at(base_offset))",
        "result.response_at(base_offset)",
        f"{_NODE}test_controller_service.py::test_what_the_requester_may_not_do_is_not_decided",
    ),
    Edit(
        "deletion_by_id_says_the_name",
        "node._forwarded_requests:_Screening._refusal_by_id",
        'topic.name if visible else ""',
        "topic.name",
        f"{_NODE}test_forwarded_requests.py::test_topics_are_deleted_by_id_and_a_refusal_does_not_say_their_names[hidden]",
    ),
    Edit(
        "deletion_by_name_says_that_there_is_no_topic",
        "node._forwarded_requests:_Screening._refusal_by_name",
        "if self._allows_topic(Operation.DESCRIBE, name):",
        "if True:",
        f"{_NODE}test_forwarded_requests.py::test_topics_are_deleted_by_name[neither]",
    ),
    Edit(
        "any_peer_creates_topics_in_a_brokers_name",
        "node._forwarded_requests:screen",
        "0 <= request.broker_id == peer_id",
        "request.broker_id >= 0",
        f"{_NODE}test_forwarded_requests.py::test_what_brokers_do_by_themselves_is_asked_of_nobody",
    ),
    Edit(
        "creation_shows_configs_to_everybody",
        "node._forwarded_requests:_Screening._as_far_as_visible",
        "if result.error or",
        "if True or",
        f"{_NODE}test_forwarded_requests.py::test_the_configs_of_a_new_topic_are_not_shown_to_everybody",
    ),
    Edit(
        "requester_is_forgotten_on_the_way",
        "broker.apis.handler.authorization:requester_of",
        "return str(principal), host",
        'return "User:ANONYMOUS", host',
        f"{_APIS}test_authorized_administration.py::test_the_principal_and_the_host_travel_with_what_is_forwarded",
    ),
    Edit(
        "list_of_all_topics_is_shared_by_all_principals",
        "broker.apis.discovery._metadata:_answer_for_visible",
        "if is_all and",
        "if",
        f"{_APIS}test_authorized_discovery.py::test_no_principal_is_given_the_answer_of_another[True-True]",
    ),
    Edit(
        "topic_that_nobody_asked_about_is_shown",
        "broker.apis.discovery._metadata:_answer_for_visible",
        "and topics is asked",
        "",
        f"{_APIS}test_authorized_discovery.py::test_many_topics_are_asked_about_in_several_turns",
    ),
    Edit(
        "operations_are_shared_by_all_principals",
        "broker.apis.discovery._metadata:_answer",
        "(context.authorizer is None or not any(options))",
        "True",
        f"{_APIS}test_authorized_discovery.py::test_principals_that_see_the_same_have_operations_of_their_own[True]",
    ),
    Edit(
        "denied_topics_take_the_kept_answer",
        "broker.apis.discovery._metadata:_answer",
        "not any(errors.values()) and",
        "True and",
        f"{_APIS}test_authorized_discovery.py::test_no_principal_is_given_the_answer_of_another[False-False]",
    ),
    Edit(
        "page_of_partitions_says_that_a_topic_is_there",
        "broker.apis.administration._topics:handle_describe_partitions",
        "if named:",
        "if topics.by_name(name):",
        f"{_APIS}test_authorized_discovery.py::test_partitions_are_described_of_what_may_be_described",
    ),
)
