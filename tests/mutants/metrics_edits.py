"""Small edits of metrics, each with the test that finds it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_TOPICS = "unit/broker/metrics/test_topics.py"
_REPLICAS = "unit/broker/replication/test_replica_metrics.py"
_LOGS = "unit/broker/log/test_log_metrics.py"
_REQUESTS = "unit/broker/metrics/test_requests.py"
_OTHER = "test_what_comes_when_the_room_is_used_up_counts_as_other_and_no_total_falls"
_IDLE = "test_an_api_that_nobody_uses_any_more_keeps_its_totals_and_has_no_quantiles"
_REGISTRY = "unit/raftctl/metrics/test_registry.py"
_SHOWN = "test_partitions_have_series_while_they_fit_and_sums_are_right[problem-9-shown1]"

EDITS = (
    Edit(
        "topic_with_a_new_series_takes_from_the_others",
        "broker.metrics._topics:TopicMetrics._show",
        "_minus(self._topics[topic].of_topics, own)",
        "_NOTHING",
        f"{_TOPICS}::test_a_topic_that_gets_a_series_takes_nothing_from_the_others",
    ),
    Edit(
        "series_that_comes_back_begins_at_0",
        "broker.metrics._topics:TopicMetrics._show",
        "own = self._own.pop(topic, _NOTHING)",
        "own = _NOTHING",
        f"{_TOPICS}::test_a_topic_that_gets_a_series_takes_nothing_from_the_others",
    ),
    Edit(
        "deleted_topic_comes_up_among_the_others",
        "broker.metrics._topics:TopicMetrics.dropped",
        "self._hide(topic)",
        "del self._others[topic]",
        f"{_TOPICS}::test_a_deleted_topic_leaves_what_it_counted_to_the_broker",
    ),
    Edit(
        "topics_have_series_without_bound",
        "broker.metrics._topics:TopicMetrics._choose",
        "fit = room // len(OF_TOPICS)",
        "fit = len(self._topics)",
        f"{_TOPICS}::test_the_busiest_topics_have_series_and_one_series_has_the_rest",
    ),
    Edit(
        "answer_to_a_follower_counts_as_a_consumers",
        "broker.metrics._topics:TopicCounts.read",
        "if to_follower:",
        "if False:",
        f"{_TOPICS}::test_each_count_has_its_series_of_the_topic_and_of_the_broker",
    ),
    Edit(
        "repeated_batch_has_messages",
        "broker.replication.partition._partition:Partition.append",
        "0 if done.duplicate else done.next_offset - done.base_offset",
        "done.next_offset - done.base_offset",
        f"{_REPLICAS}::test_a_repeated_batch_is_a_request_without_messages",
    ),
    Edit(
        "replica_that_a_reassignment_adds_is_lacking",
        "broker.replication.partition._conditions:condition_of",
        "len(state.replicas) - len(state.adding)",
        "len(state.replicas)",
        f"{_REPLICAS}::test_a_reassignment_is_counted_until_it_ends_and_lacks_nobody",
    ),
    Edit(
        "new_min_insync_replicas_is_not_counted",
        "broker.replication._replica_manager:ReplicaManager._reconfigure",
        "self.conditions.note(replica)",
        "pass",
        f"{_REPLICAS}::test_a_leader_counts_what_its_isr_lacks",
    ),
    Edit(
        "failed_directory_has_no_offline_replicas",
        "broker.replication._replica_manager:ReplicaManager._take_offline",
        "self.conditions.note(replica)",
        "pass",
        f"{_REPLICAS}::test_a_replica_whose_directory_failed_is_offline",
    ),
    Edit(
        "isr_that_shrinks_counts_as_one_that_expands",
        "broker.replication._controller_reports:IsrManager._apply_result",
        "if proposal.is_expansion:",
        "if True:",
        f"{_REPLICAS}::test_isr_changes_are_counted_by_their_direction",
    ),
    Edit(
        "partitions_with_series_are_in_the_sums_as_well",
        "broker.replication._replica_metrics:ReplicaMetrics._add_others",
        "max(totals[metric] - _total(samples), 0)",
        "totals[metric]",
        f"{_REPLICAS}::{_SHOWN}",
    ),
    Edit(
        "partitions_in_trouble_are_not_first",
        "broker.replication._replica_metrics:ReplicaMetrics._shown",
        "self._replicas.conditions.problems(fit)",
        "sorted(here)[:fit]",
        f"{_REPLICAS}::{_SHOWN}",
    ),
    Edit(
        "flush_of_the_scheduler_is_not_counted",
        "broker.log.directories._log_directory:LogDirectory.flush",
        "self._flush_times.add(asyncio.get_running_loop().time() - begun_at)",
        "pass",
        f"{_LOGS}::test_each_flush_is_counted_with_its_time",
    ),
    Edit(
        "details_have_all_room",
        "metrics._registry:Metrics.families",
        "max(self.series_max - series - later, 0)",
        "self.series_max",
        f"{_REGISTRY}::test_details_get_the_room_that_others_leave",
    ),
    Edit(
        "details_leave_no_room_for_later_ones",
        "metrics._registry:Metrics.families",
        "later -= details.series_min",
        "later = 0",
        f"{_REGISTRY}::test_details_leave_the_room_that_those_after_them_need",
    ),
    Edit(
        "each_api_has_series",
        "broker.metrics._requests:RequestTimes._new_api",
        "self._room < _API_SERIES",
        "False",
        f"{_REQUESTS}::{_OTHER}",
    ),
    Edit(
        "each_error_has_a_series",
        "broker.metrics._requests:RequestTimes._admitted",
        "self._room <= 0",
        "False",
        f"{_REQUESTS}::{_OTHER}",
    ),
    Edit(
        "idle_api_has_quantiles",
        "broker.metrics._requests:_summary",
        "() if measured.is_empty else asked",
        "asked",
        f"{_REQUESTS}::{_IDLE}",
    ),
)
