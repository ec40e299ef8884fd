"""Small edits of logs and replicas that only an invariant finds at once, each with its test."""

from __future__ import annotations

from tests.mutants.edit import Edit

_LOG = "unit/broker/log/test_invariants.py::"
_REPLICAS = "unit/broker/replication/test_invariants.py::"
_OF_LOG = "broker.log.partition_log._partition_log:PartitionLog"
_OF_MANAGER = "broker.log._log_manager:LogManager"
_OF_SEGMENT = "broker.log.segments._segment:Segment"
_OF_PRODUCERS = "broker.log.producers._producer_state:ProducerStates"
_OF_STATE = "broker.replication.partition._partition_state:PartitionState"
_OF_INDEX = "broker.replication.partition._fetch_session_index:FetchSessionIndex"
_OF_PURGATORY = "broker.replication.purgatory._purgatory:Purgatory"
_OF_WHEEL = "broker.replication.purgatory._purgatory"

EDITS = (
    Edit(
        "two_epochs_begin_at_one_offset",
        "broker.log.partition_log._partition_log:LeaderEpochs.assign",
        "self.truncate_to(start_offset)",
        "self.truncate_to(start_offset + 1)",
        f"{_LOG}test_leader_epochs_that_write_nothing_make_room",
    ),
    Edit(
        "older_epoch_after_a_newer_one",
        "broker.log.partition_log._partition_log:LeaderEpochs.assign",
        "epoch <= self.latest",
        "epoch < 0",
        f"{_LOG}test_leader_epochs_that_write_nothing_make_room",
    ),
    Edit(
        "gap_between_segments_of_a_follower",
        f"{_OF_SEGMENT}.successor_base",
        "return self.next_offset if fits else header.base_offset",
        "return header.base_offset",
        f"{_LOG}test_a_follower_meets_holes_and_starts_within_a_batch",
    ),
    Edit(
        "time_index_beyond_a_cut",
        f"{_OF_SEGMENT}.truncate_to",
        "self._times.truncate(at.header.base_offset)\n",
        "pass\n",
        f"{_LOG}test_truncation_leaves_indexes_bounds_and_epochs_within_the_log",
    ),
    Edit(
        "time_index_beyond_a_file_that_became_shorter",
        "broker.log.partition_log._opening:_trust",
        "not segment.is_shorter_than_its_index",
        "True",
        f"{_LOG}test_a_log_that_is_opened_after_its_files_were_cut",
    ),
    Edit(
        "recovery_point_beyond_a_cut",
        f"{_OF_LOG}.truncate_to",
        "self.recovery_point = min(self.recovery_point, self.log_end_offset)\n",
        "pass\n",
        f"{_LOG}test_truncation_leaves_indexes_bounds_and_epochs_within_the_log",
    ),
    Edit(
        "high_watermark_beyond_a_cut",
        f"{_OF_LOG}.truncate_to",
        "self.high_watermark = min(self.high_watermark, self.log_end_offset)\n",
        "pass\n",
        f"{_LOG}test_truncation_leaves_indexes_bounds_and_epochs_within_the_log",
    ),
    Edit(
        "epoch_that_begins_beyond_a_cut",
        f"{_OF_LOG}.truncate_to",
        "self.epochs.truncate_to(min(offset, self.log_end_offset))\n",
        "pass\n",
        f"{_LOG}test_truncation_leaves_indexes_bounds_and_epochs_within_the_log",
    ),
    Edit(
        "log_start_beyond_the_log",
        f"{_OF_LOG}.truncate_to",
        "if self.log_end_offset < self.log_start_offset:",
        "if False:",
        f"{_LOG}test_a_follower_meets_holes_and_starts_within_a_batch",
    ),
    Edit(
        "high_watermark_below_the_log_start",
        f"{_OF_LOG}.advance_log_start",
        "self.high_watermark = max(self.high_watermark, offset)\n",
        "pass\n",
        f"{_LOG}test_a_log_start_that_moves_takes_old_segments_and_bounds_with_it",
    ),
    Edit(
        "segment_below_the_log_start_stays",
        f"{_OF_LOG}.advance_log_start",
        "self._retire_one(0)\n",
        "break\n",
        f"{_LOG}test_a_log_start_that_moves_takes_old_segments_and_bounds_with_it",
    ),
    Edit(
        "cut_segment_counts_as_durable",
        f"{_OF_SEGMENT}.truncate_to",
        "self.is_durable = False\n",
        "pass\n",
        f"{_LOG}test_truncation_leaves_indexes_bounds_and_epochs_within_the_log",
    ),
    Edit(
        "compacted_segment_loses_its_end",
        "broker.log._cleaner:Cleaning._rewrite",
        "self._last_of_producers | {group[-1].next_offset - 1}",
        "self._last_of_producers",
        f"{_LOG}test_compaction_keeps_the_span_of_what_it_rewrites",
    ),
    Edit(
        "producer_of_a_cut_batch_stays",
        f"{_OF_PRODUCERS}.truncate_to",
        "self._undo[-1].base_offset >= end_offset",
        "False",
        f"{_LOG}test_transactions_that_end_and_are_cut_off",
    ),
    Edit(
        "cut_transaction_stays_unstable",
        f"{_OF_PRODUCERS}.truncate_to",
        "bisect_left(self._unstable, (end_offset, -1))",
        "len(self._unstable)",
        f"{_LOG}test_transactions_that_end_and_are_cut_off",
    ),
    Edit(
        "cut_marker_stays_an_end",
        f"{_OF_PRODUCERS}.truncate_to",
        "self._ended.pop()\n",
        "break\n",
        f"{_LOG}test_transactions_that_end_and_are_cut_off",
    ),
    Edit(
        "moved_log_stays_in_its_old_directory",
        f"{_OF_MANAGER}._take_moved",
        "del home.logs[partition]\n",
        "pass\n",
        f"{_LOG}test_logs_are_created_moved_and_deleted_and_a_directory_fails",
    ),
    Edit(
        "deleted_log_keeps_its_home",
        f"{_OF_MANAGER}.delete",
        "self._home.pop(partition, None)",
        "self._home.get(partition)",
        f"{_LOG}test_logs_are_created_moved_and_deleted_and_a_directory_fails",
    ),
    Edit(
        "log_outlives_its_directory",
        "broker.log.directories._log_directory:LogDirectory.fail",
        "log.offline = ",
        "_ = ",
        f"{_LOG}test_logs_are_created_moved_and_deleted_and_a_directory_fails",
    ),
    Edit(
        "high_watermark_of_a_replica_that_was_cut",
        f"{_OF_LOG}.truncate_to",
        "min(offset, self.log_start_offset)",
        "offset",
        f"{_REPLICAS}test_a_follower_that_is_cut_within_a_batch",
    ),
    Edit(
        "state_and_log_disagree_on_what_is_committed",
        "broker.replication.partition._partition:Partition._keep_high_watermark",
        "self.log.high_watermark = self.state.high_watermark\n",
        "pass\n",
        f"{_REPLICAS}test_brokers_take_over_and_hand_back",
    ),
    Edit(
        "proposal_outlives_its_epoch",
        f"{_OF_STATE}._commit_isr",
        "self.proposal = None\n",
        "pass\n",
        f"{_REPLICAS}test_a_replica_leads_proposes_follows_and_resigns",
    ),
    Edit(
        "refused_replica_stays_in_the_maximal_isr",
        f"{_OF_STATE}.proposal_refused",
        "self.maximal_isr = self.isr\n",
        "pass\n",
        f"{_REPLICAS}test_a_replica_leads_proposes_follows_and_resigns",
    ),
    Edit(
        "replica_that_resigned_tracks_followers",
        f"{_OF_STATE}.resign",
        "self.followers = {}\n",
        "pass\n",
        f"{_REPLICAS}test_a_replica_leads_proposes_follows_and_resigns",
    ),
    Edit(
        "follower_tracks_followers",
        f"{_OF_STATE}.become_follower",
        "self.followers = {}\n",
        "pass\n",
        f"{_REPLICAS}test_a_replica_leads_proposes_follows_and_resigns",
    ),
    Edit(
        "idle_partition_stays_dirty",
        f"{_OF_INDEX}.mark_idle",
        "del self._dirty[key]\n",
        "pass\n",
        f"{_REPLICAS}test_a_session_is_idle_and_dirty_again",
    ),
    Edit(
        "operation_that_is_answered_is_still_watched",
        f"{_OF_PURGATORY}._forget",
        "del watchers[operation]\n",
        "pass\n",
        f"{_REPLICAS}test_operations_wait_are_woken_and_time_out",
    ),
    Edit(
        "partition_that_nothing_watches_is_kept",
        f"{_OF_PURGATORY}._forget",
        "if not watchers:",
        "if False:",
        f"{_REPLICAS}test_operations_wait_are_woken_and_time_out",
    ),
    Edit(
        "timer_of_the_loop_is_late",
        f"{_OF_PURGATORY}.wait",
        "self._arm()\n",
        "pass\n",
        f"{_REPLICAS}test_operations_wait_are_woken_and_time_out",
    ),
    Edit(
        "bucket_is_queued_twice",
        f"{_OF_WHEEL}:TimingWheel._place",
        "bucket.queued = True\n",
        "pass\n",
        f"{_REPLICAS}test_timers_move_down_the_wheels",
    ),
    Edit(
        "bucket_forgets_its_earliest_timer",
        f"{_OF_WHEEL}:Timer.move_to",
        "self.expires_ms < bucket.earliest_ms",
        "False",
        f"{_REPLICAS}test_timers_move_down_the_wheels",
    ),
    Edit(
        "old_samples_count_for_ever",
        "broker.replication.partition._throttle:SampledRate._expire",
        "self._total -= self._samples.popleft()[1]",
        "self._samples.popleft()",
        f"{_REPLICAS}test_a_rate_forgets_old_samples",
    ),
    Edit(
        "leader_still_copies",
        "broker.replication._replica_manager:ReplicaManager._lead",
        "self._fetchers.unfollow(replica.partition)\n",
        "pass\n",
        f"{_REPLICAS}test_brokers_take_over_and_hand_back",
    ),
    Edit(
        "two_fetchers_copy_one_partition",
        "broker.replication.fetcher._fetcher:Fetchers.follow",
        "!= link:\n        self.unfollow(replica.partition)",
        "!= link:\n        pass",
        f"{_REPLICAS}test_brokers_take_over_and_hand_back",
    ),
    Edit(
        "partition_is_copied_in_an_older_epoch",
        "broker.replication._replica_manager:ReplicaManager._follow",
        "self._fetchers.follow(replica, image.leader)",
        "pass",
        f"{_REPLICAS}test_brokers_take_over_and_hand_back",
    ),
)
