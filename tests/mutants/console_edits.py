"""Edits of the console: what it shows, to whom, and what keeps other sites out (W1 to W3)."""

from __future__ import annotations

from tests.mutants.edit import Edit

_CONSOLE = "unit/raftctl/console"
_PAGES = "unit/raftctl/node/test_foreign_pages.py"

EDITS = (
    Edit(
        "console_serves_pages_of_other_sites",
        "node._http_access:no_foreign_pages",
        "not _is_own_origin(request, is_tls=is_tls)",
        "False",
        f"{_PAGES}::test_the_console_serves_no_page_of_another_site[headers0]",
    ),
    Edit(
        "page_that_came_without_tls_asks_over_tls",
        "node._http_access:_is_own_origin",
        '("https",) if is_tls else ("http", "https")',
        '("http", "https")',
        f"{_PAGES}::test_over_tls_the_page_came_over_tls",
    ),
    Edit(
        "foreign_picture_asks_the_console",
        "node._http_access:no_foreign_pages",
        'site not in ("none", "same-origin")',
        "False",
        f"{_PAGES}::test_the_console_serves_no_page_of_another_site[headers7]",
    ),
    Edit(
        "form_of_another_site_acts",
        "console.http._requests:answering",
        'request.method == "POST" and request.headers.get(OWN_HEADER) != "1"',
        "False",
        f"{_CONSOLE}/test_http.py::test_what_no_page_of_ours_sends_is_not_done[sent0-X-Raftctl-Console]",
    ),
    Edit(
        "browser_may_guess_what_an_answer_is",
        "console.http._requests:protect",
        "response.headers.update(_PROTECTION)",
        "response.headers.update({})",
        f"{_CONSOLE}/test_http.py::test_every_answer_is_protected[/console/api/overview]",
    ),
    Edit(
        "topics_of_others_are_listed",
        "console._topics:TopicViews.visible",
        "rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)",
        "True",
        f"{_CONSOLE}/test_topics.py::test_topics_of_others_are_left_out_and_refused",
    ),
    Edit(
        "topic_of_another_is_shown_by_its_name",
        "console._topics:TopicViews.topic",
        "rights.require(Operation.DESCRIBE, ResourceType.TOPIC, name)",
        "pass",
        f"{_CONSOLE}/test_topics.py::test_topics_of_others_are_left_out_and_refused",
    ),
    Edit(
        "events_name_topics_of_others",
        "console._events:_document",
        "rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)",
        "True",
        f"{_CONSOLE}/test_events.py::test_a_viewer_sees_no_names_of_topics_that_are_not_for_it",
    ),
    Edit(
        "problems_of_others_are_told",
        "console._problems:Problems._of_topics",
        "if may and not is_said",
        "if not is_said",
        f"{_CONSOLE}/test_problems.py::test_problems_of_others_are_left_out",
    ),
    Edit(
        "quorum_is_shown_to_everybody",
        "console._quorum:QuorumViews.quorum",
        "asked.rights.require(Operation.DESCRIBE, ResourceType.CLUSTER)",
        "pass",
        f"{_CONSOLE}/test_quorum.py::test_who_may_not_describe_the_cluster_is_refused",
    ),
    Edit(
        "lags_of_an_older_epoch_are_shown",
        "console._quorum:QuorumViews._replicas",
        "answered is not None and answered.epoch == status.epoch",
        "answered is not None",
        f"{_CONSOLE}/test_quorum.py::test_another_node_asks_the_leader",
    ),
    Edit(
        "stream_forgets_what_changed_before",
        "console._events:EventStreams.publish",
        "viewer.changed.add(changed)",
        "viewer.changed = changed",
        f"{_CONSOLE}/test_events.py::test_changes_are_gathered_while_a_state_is_written",
    ),
    Edit(
        "streams_have_no_limit",
        "console._events:EventStreams.stream",
        "len(self._viewers) >= STREAMS_MAX",
        "False",
        f"{_CONSOLE}/test_events.py::test_streams_are_bounded",
    ),
    Edit(
        "open_pages_hold_a_node_up",
        "console._events:EventStreams.close",
        "task.cancel()",
        "pass",
        f"{_CONSOLE}/test_events.py::test_a_node_stops_though_pages_are_open",
    ),
    Edit(
        "health_of_a_topic_keeps_its_old_min_isr",
        "console._topic_health:ClusterHealth._with_other_configs",
        "kind == TOPIC_RESOURCE",
        "False",
        f"{_CONSOLE}/test_topics.py::test_counts_follow_changes",
    ),
    Edit(
        "health_counts_a_changed_partition_twice",
        "console._topic_health:ClusterHealth._changed",
        "found = _sum(found, conditions(was, known.min_isr), -1)",
        "pass",
        f"{_CONSOLE}/test_topic_health.py::test_counts_are_those_of_all_partitions",
    ),
    Edit(
        "trouble_that_was_over_counts_as_the_beginning",
        "console._history:History._follow_partition",
        "began.pop(condition, None)",
        "pass",
        f"{_CONSOLE}/test_history.py::test_the_log_says_since_when",
    ),
    Edit(
        "beginning_is_claimed_though_the_log_lacks_it",
        "console._history:History.topic_since",
        "known and len(known) == len(times)",
        "known",
        f"{_CONSOLE}/test_history.py::test_what_is_older_than_the_log_has_no_time",
    ),
    Edit(
        "secret_of_a_config_is_shown",
        "console.brokers._configs:_config",
        '"value": None if one["is_sensitive"] else one["value"]',
        '"value": one["value"]',
        f"{_CONSOLE}/test_cluster.py::test_a_secret_has_no_value_whatever_the_broker_sends",
    ),
    Edit(
        "silent_broker_holds_problems_up",
        "console._problems:Problems._of_disks",
        "timeout=PATIENCE_S",
        "timeout=None",
        f"{_CONSOLE}/test_problems.py::test_a_broker_that_does_not_answer_holds_nobody_up",
    ),
)
