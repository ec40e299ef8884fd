"""Edits of lag, connections, elections, idle shares and readiness (rows O1, O3, N4)."""

from __future__ import annotations

from tests.mutants.edit import Edit

_LAG = "unit/broker/lag/test_group_lag.py"
_OFFSETS = "unit/broker/lag/test_offsets.py"
_CONNECTIONS = "unit/broker/server/test_connection_counts.py"
_PROCESS = "unit/raftctl/node/test_process_metrics.py"
_READINESS = "unit/raftctl/admin/test_readiness.py"
_RAFT = "unit/raftctl/quorum/test_metrics.py"

EDITS = (
    Edit(
        "group_that_has_moved_is_shown_twice",
        "broker.lag._group_lag:GroupLag.prepare",
        "self._is_here(group.group_id)",
        "True",
        f"{_LAG}::test_a_group_that_has_moved_is_shown_no_more",
    ),
    Edit(
        "groups_of_the_greatest_lag_are_folded",
        "broker.lag._group_lag:_order",
        "-group.lag",
        "group.lag",
        f"{_LAG}::test_groups_of_the_least_lag_are_summed_where_room_is_short",
    ),
    Edit(
        "lag_is_below_zero",
        "broker.lag._group_lag:_Group.add",
        "max(0, end - offset)",
        "end - offset",
        f"{_LAG}::test_an_end_that_is_older_than_the_offset_is_no_lag",
    ),
    Edit(
        "end_that_is_not_known_is_the_offset",
        "broker.lag._group_lag:_Group.add",
        "None if end is None",
        "0 if end is None",
        f"{_LAG}::test_an_end_that_nobody_tells_is_no_lag_and_deleted_topics_are_left_out",
    ),
    Edit(
        "round_looks_at_all_offsets",
        "broker.lag._group_lag:GroupLag.refresh",
        "room -= 1 + len(committed)",
        "pass",
        f"{_LAG}::test_a_round_looks_at_no_more_offsets_than_is_bounded",
    ),
    Edit(
        "follower_shows_a_partition_too",
        "broker.lag._partition_offsets:PartitionOffsets.prepare",
        "replica.state.is_leader",
        "True",
        f"{_OFFSETS}::test_a_partition_is_shown_by_its_leader_and_a_topic_by_that_of_its_first",
    ),
    Edit(
        "partitions_without_room_are_lost",
        "broker.lag._partition_offsets:PartitionOffsets.collect",
        "total - own",
        "0",
        f"{_OFFSETS}::test_partitions_without_room_are_summed[0]",
    ),
    Edit(
        "led_partitions_in_trouble_are_not_first",
        "broker.lag._partition_offsets:PartitionOffsets._shown",
        "chain(troubled, ",
        "chain((), here) if troubled else chain(troubled, ",
        f"{_OFFSETS}::test_partitions_with_a_problem_have_the_room_that_there_is",
    ),
    Edit(
        "own_end_is_that_of_a_follower",
        "broker.lag._end_offsets:EndOffsets.of",
        "leader == self._broker_id and replica is not None",
        "replica is not None",
        f"{_OFFSETS}::test_a_partition_without_a_leader_or_with_one_that_is_gone_has_no_end",
    ),
    Edit(
        "connection_that_ended_is_counted_as_open",
        "broker.server._connection_limits:ConnectionLimits.forget",
        "self.counts[origin.listener].closed.count += 1",
        "pass",
        f"{_CONNECTIONS}::test_connections_are_counted_as_they_come_and_go",
    ),
    Edit(
        "login_that_failed_is_not_counted",
        "broker.authentication._authenticator:Authenticator._fail",
        "self._on_login(succeeded=False)",
        "pass",
        f"{_CONNECTIONS}::test_logins_are_counted_by_how_they_end",
    ),
    Edit(
        "errors_of_partitions_are_not_counted",
        "broker.apis._dispatch:errors_of",
        "parts += value",
        "pass",
        "unit/broker/apis/test_response_errors.py::"
        "test_errors_of_a_response_and_its_parts_are_counted[answer2-errors2]",
    ),
    Edit(
        "unclean_election_is_none",
        "admin._partition_counts:PartitionCounts._follow_topic",
        "after.leader in (*before.isr, *before.elr)",
        "True",
        "unit/raftctl/admin/test_partition_counts.py::"
        "test_the_controller_alone_counts_elections[True]",
    ),
    Edit(
        "every_controller_counts_elections",
        "admin._partition_counts:PartitionCounts._follow_topic",
        "and self._is_active()",
        "",
        "unit/raftctl/admin/test_partition_counts.py::"
        "test_the_controller_alone_counts_elections[False]",
    ),
    Edit(
        "election_begins_again_with_each_epoch",
        "quorum._metrics:RaftMetrics.on_leader_changed",
        "if self._leaderless_since is None:",
        "if True:",
        f"{_RAFT}::test_an_election_lasts_until_a_leader_is_known",
    ),
    Edit(
        "idle_share_is_of_all_time",
        "node._process_metrics:_share",
        "noted[max(0, len(noted) - 1 - ticks)]",
        "noted[0]",
        f"{_PROCESS}::test_idle_is_the_share_of_time_in_which_the_loop_had_nothing_to_do",
    ),
    Edit(
        "every_problem_takes_a_node_out_at_once",
        "admin._readiness:Readiness.problems",
        "now_s - self._well_at < GRACE_S",
        "False",
        f"{_READINESS}::test_a_short_problem_changes_nothing_and_a_long_one_does",
    ),
    Edit(
        "fenced_broker_has_grace",
        "admin._readiness:Readiness.problems",
        "any(one.at_once for one in found)",
        "False",
        f"{_READINESS}::test_a_broker_that_clients_do_not_find_is_not_ready_at_once",
    ),
    Edit(
        "replicas_that_lag_take_a_broker_out",
        "admin._readiness:Readiness.problems",
        "not found and self._well_at is None",
        "not found",
        f"{_READINESS}::test_replicas_that_lag_later_take_no_broker_out_of_service",
    ),
    Edit(
        "broken_disk_keeps_a_broker_out_for_ever",
        "admin._readiness:Readiness._first_problems",
        "now_s - self._waits_since >= PATIENCE_S",
        "False",
        f"{_READINESS}::test_replicas_that_never_come_keep_a_broker_no_longer_than_is_bounded",
    ),
)
