"""Small edits that a random sample of all that one operator changes found unnoticed, and such as
stand for faults of clocks, disks and identities; each with the test that notices it now.
"""

from __future__ import annotations

from tests.mutants.edit import Edit

_BOUNDS = (
    "unit/raftctl/raft/test_validation.py::test_the_last_that_may_be_is_taken_and_the_next_is_not"
)
_ONE_LEADER = "unit/raftctl/raft/test_validation.py::test_an_epoch_has_no_second_leader"
_CLEAN_END = (
    "unit/raftctl/controller/test_elections.py"
    "::test_only_the_epoch_of_the_very_last_life_tells_of_a_clean_end"
)
_SUSPENDED = "test_a_session_goes_on_to_end_while_the_machine_is_suspended"
_LEASE_CLOCK = (
    "unit/raftctl/runtime/test_lease_clock.py"
    "::test_a_lease_is_counted_by_the_clock_that_goes_on_in_suspend_and_is_never_set"
)
_HELD_UP = "test_who_is_late_for_a_look_by_more_than_a_look_was_held_up"
_SYNC = (
    "unit/raftctl/runtime/test_real.py"
    "::test_a_sync_has_asked_the_disk_when_it_returns_and_tells_its_errors"
)
_RETENTION = (
    "unit/raftctl/storage/test_snapshots.py::test_retention_deletes_the_oldest_and_never_the_newest"
)
_NO_TWINS = "unit/raftctl/raft/test_membership.py::test_no_two_voters_have_one_directory[1]"
_ADDRESS_QUOTA = (
    "unit/raftctl/controller/test_security.py"
    "::test_an_address_has_a_quota_of_its_own_kind_alone[192.0.2.7]"
)

RAFT = (
    Edit(
        "epoch_far_ahead_believed",
        "raft._validation:complaint_of",
        "<= min(EPOCH_MAX",
        "< min(EPOCH_MAX",
        f"{_BOUNDS}[0-16777223-<lambda>0]",
    ),
    Edit(
        "position_at_the_bound_refused",
        "raft._validation:_is_position",
        "<= OFFSET_MAX",
        "< OFFSET_MAX",
        f"{_BOUNDS}[0-4611686018427387903-<lambda>0]",
    ),
    Edit(
        "one_sound_position_is_enough",
        "raft._validation:_of_answer",
        "all(",
        "any(",
        f"{_BOUNDS}[0-4611686018427387903-<lambda>3]",
    ),
    Edit(
        "snapshot_pieces_anywhere",
        "raft._validation:_of_answer",
        "return None if sound else",
        "return None if True else",
        f"{_BOUNDS}[0-4611686018427387903-<lambda>5]",
    ),
    Edit(
        "ports_of_fifteen_bits",
        "raft._validation:is_endpoint",
        "1 << 16",
        "1 << 15",
        f"{_BOUNDS}[1-65535-<lambda>]",
    ),
    Edit(
        "second_leader_of_an_older_epoch",
        "raft._validation:names_other_leader",
        "same_epoch and ",
        "",
        _ONE_LEADER,
    ),
    Edit(
        "whoever_begins_is_another",
        "raft._core:RaftCore.believes",
        "not other",
        "other",
        "unit/raftctl/raft/test_elections.py"
        "::test_only_what_the_leader_of_this_epoch_or_a_newer_one_may_say_is_believed",
    ),
    Edit(
        "dropped_answer_waited_for",
        "raft._core:RaftCore._dropped",
        "self._fetch_failed(fetcher, now_ms)",
        "pass",
        "unit/raftctl/raft/test_replication.py"
        "::test_an_answer_that_says_nothing_is_as_none_told_and_asked_for_again[wrong0]",
    ),
    Edit(
        "own_fetch_served",
        "raft._core:RaftCore._fetch",
        "request.replica == self._replica.local",
        "False",
        "unit/raftctl/raft/test_replication.py::test_nobody_fetches_in_the_name_of_the_node_that_it_asks",
    ),
    Edit(
        "resignation_tells_no_epoch",
        "raft._core:RaftCore._end_quorum_epoch",
        "self._roles.learn(request.epoch, NO_NODE, now_ms)",
        "pass",
        "unit/raftctl/raft/test_elections.py::test_a_resignation_in_a_newer_epoch_tells_of_that_epoch",
    ),
    Edit(
        "retry_always_due",
        "raft._fetcher:Fetcher.fetch",
        "self.retry_at_ms = None",
        "pass",
        "unit/raftctl/raft/test_replication.py"
        "::test_a_fetch_that_failed_is_sent_again_after_a_growing_pause",
    ),
    Edit(
        "gone_voter_cannot_leave",
        "raft._leader:Membership.begin",
        "request.replica if isinstance(request, RemoveVoterRequest) else None",
        "None",
        "unit/raftctl/raft/test_membership.py"
        "::test_a_voter_that_was_never_heard_may_leave_but_nobody_else_while_it_is_unknown",
    ),
    Edit(
        "voters_record_counts_twice",
        "raft._roles:Roles._lead",
        "leader.propose(encode_voters(replica.voters), 1,",
        "leader.propose(encode_voters(replica.voters), 2,",
        "unit/raftctl/raft/test_membership.py"
        "::test_the_records_of_a_leader_that_tell_who_leads_and_votes_are_one_each",
    ),
    Edit(
        "snapshot_not_known_to_be_committed",
        "raft._replica:Replica.__init__",
        "snapshot.offset if snapshot else log.start_offset",
        "log.start_offset",
        "unit/raftctl/raft/test_elections.py::test_what_a_snapshot_holds_is_committed_from_the_start",
    ),
    Edit(
        "votes_of_former_voters_count",
        "raft._campaign:Campaign.won",
        "len(self.granting.intersection(voters.ids))",
        "len(self.granting)",
        "unit/raftctl/raft/test_membership.py::test_votes_of_those_who_vote_no_more_make_no_leader",
    ),
    Edit(
        "copied_disk_votes",
        "raft._leader:_judge",
        "if directory_id in others",
        "if directory_id is None",
        _NO_TWINS,
    ),
    Edit(
        "copied_disks_in_the_first_voters",
        "cli.offline.voters:parse_controllers_with_ids",
        "len(set(directory_ids)) < len(directory_ids)",
        "False",
        "unit/raftctl/cli/test_format.py::test_no_two_voters_have_one_directory",
    ),
    Edit(
        "length_of_a_batch_without_its_prefix",
        "raft.batch:encoded_bytes",
        "PREFIX_BYTES + int(length)",
        "int(length)",
        "unit/raftctl/raft/test_batch.py::test_a_batch_says_how_long_it_is",
    ),
    Edit(
        "damaged_length_taken_for_a_torn_tail",
        "raft.batch:is_whole_but_for_its_length",
        "== crc",
        "!= crc",
        "unit/raftctl/raft/test_batch.py::test_a_wrong_length_alone_does_not_hide_a_whole_batch",
    ),
    Edit(
        "smallest_batch_taken_for_a_torn_tail",
        "raft.batch:is_whole_but_for_its_length",
        "< HEADER_BYTES",
        "<= HEADER_BYTES",
        "unit/raftctl/raft/test_batch.py::test_the_smallest_batch_is_whole_and_less_is_not",
    ),
    Edit(
        "bit_rot_in_a_batch",
        "raft.batch:_decode_one",
        "crc32c(body) != crc",
        "crc32c(body) < 0",
        "unit/raftctl/raft/test_batch.py::test_a_flipped_bit_is_found",
    ),
)

DISK = (
    Edit(
        "fsync_lies",
        "runtime.real:RealFile.sync",
        "os.fdatasync(self._descriptor)",
        "pass",
        _SYNC,
    ),
    Edit(
        "fsync_of_a_directory_lies",
        "runtime.real:RealFileSystem.sync_directory",
        "os.fsync(descriptor)",
        "pass",
        _SYNC,
    ),
    Edit(
        "bit_rot_in_a_piece",
        "storage.snapshots._store:SnapshotPieces.read",
        "_check_piece(data, begin)",
        "pass",
        "unit/raftctl/storage/test_snapshots.py::test_no_piece_of_a_snapshot_has_a_bit_that_was_flipped[7]",
    ),
    Edit(
        "log_below_the_first_snapshot_not_counted",
        "storage.snapshots._store:RetentionPolicy.expired",
        "snapshots[gone].snapshot_id.offset if gone else Offset(0)",
        "snapshots[gone].snapshot_id.offset",
        f"{_RETENTION}[300--1-1]",
    ),
    Edit(
        "retention_at_its_limit_deletes",
        "storage.snapshots._store:RetentionPolicy.expired",
        "self.max_bytes < size",
        "self.max_bytes <= size",
        f"{_RETENTION}[330--1-0]",
    ),
    Edit(
        "flushed_bytes_still_wait",
        "storage.log._record_log:RecordLog._performed",
        "self._flushing_bytes = 0",
        "pass",
        "unit/raftctl/storage/test_record_log.py::test_what_waits_for_the_disk_is_counted_to_the_byte",
    ),
    Edit(
        "closed_log_keeps_its_files",
        "storage.log._record_log:RecordLog.close",
        "segment.file.close()",
        "pass",
        "unit/raftctl/storage/test_record_log.py::test_a_closed_log_has_no_file_open",
    ),
    Edit(
        "vote_of_an_earlier_release_unreadable",
        "storage._quorum_state:_checksum",
        ', separators=(",", ":")',
        "",
        "unit/raftctl/storage/test_small_files.py::test_the_vote_that_an_earlier_release_wrote_is_read",
    ),
    Edit(
        "snapshot_of_a_later_version_read",
        "storage.snapshots._store:_header",
        " or header.version > VERSION",
        "",
        "unit/raftctl/storage/test_snapshots.py::test_a_snapshot_of_a_later_version_is_not_guessed_at",
    ),
)

LEASES = (
    Edit(
        "lease_by_the_wall_clock",
        "runtime.lease_clock:lease_time",
        "time.clock_gettime(_BOOTTIME)",
        "time.time()",
        _LEASE_CLOCK,
    ),
    Edit(
        "lease_by_a_clock_that_stops_in_suspend",
        "runtime.lease_clock:lease_time",
        "time.clock_gettime(_BOOTTIME)",
        "time.monotonic()",
        _LEASE_CLOCK,
    ),
    Edit(
        "lease_by_the_loops_time",
        "runtime.lease_clock:lease_time",
        "time.clock_gettime(_BOOTTIME)",
        "loop.time()",
        _LEASE_CLOCK,
    ),
    Edit(
        "broker_session_stops_in_suspend",
        "node._registrations:BrokerLifecycle.has_session",
        "lease_time(asyncio.get_running_loop())",
        "asyncio.get_running_loop().time()",
        f"unit/raftctl/node/test_broker_lifecycle.py::{_SUSPENDED}",
    ),
    Edit(
        "client_session_stops_in_suspend",
        "client._session:Session.is_open",
        "lease_time(asyncio.get_running_loop())",
        "asyncio.get_running_loop().time()",
        f"unit/raftctl/client/test_client.py::{_SUSPENDED}",
    ),
    Edit(
        "held_up_by_one_look_more",
        "controller._cluster_control:Sessions.expired",
        "now_ms - deadline_ms > self._check_ms",
        "now_ms - deadline_ms >= self._check_ms",
        f"unit/raftctl/controller/test_sessions.py::{_HELD_UP}[400-expired0]",
    ),
    Edit(
        "order_of_silence_not_kept",
        "controller._cluster_control:Sessions.touch",
        "self._sessions.pop(broker_id, None) or",
        "self._sessions.get(broker_id) or",
        "unit/raftctl/controller/test_sessions.py::test_as_a_model_that_looks_at_everybody",
    ),
    Edit(
        "last_incarnation_has_read_for_this_one",
        "controller._cluster_control:Sessions.open",
        "self._sessions[broker_id] = Session(now_ms)",
        "self.touch(broker_id, 0, now_ms)",
        "unit/raftctl/controller/test_sessions.py"
        "::test_a_new_session_has_reached_nothing_and_drains_nothing",
    ),
    Edit(
        "looks_before_it_was_active_count",
        "controller._cluster_control:Sessions.clear",
        "self._checked_ms = None",
        "pass",
        "unit/raftctl/controller/test_sessions.py"
        "::test_a_controller_that_becomes_active_again_has_not_been_held_up",
    ),
    Edit(
        "kv_held_up_by_one_look_more",
        "controller.kv._kv_coordination:KvSessions.check",
        "> 2 * CHECK_MS",
        ">= 2 * CHECK_MS",
        f"unit/raftctl/controller/test_kv_sessions.py::{_HELD_UP}[500-True]",
    ),
    Edit(
        "kv_looks_before_the_first_session_count",
        "controller.kv._kv_coordination:KvSessions.open",
        "self._checked_ms = now_ms",
        "pass",
        "unit/raftctl/controller/test_kv_sessions.py"
        "::test_looks_come_often_and_when_the_first_session_is_over",
    ),
)

CONTROLLER = (
    Edit(
        "any_previous_epoch_is_a_clean_end",
        "controller._cluster_control:_is_clean",
        "request.previous_broker_epoch == broker.broker_epoch",
        "request.previous_broker_epoch >= 0",
        f"{_CLEAN_END}[-1-True]",
    ),
    Edit(
        "later_previous_epoch_is_a_clean_end",
        "controller._cluster_control:_is_clean",
        "== broker.broker_epoch",
        ">= broker.broker_epoch",
        f"{_CLEAN_END}[1-True]",
    ),
    Edit(
        "no_end_is_clean",
        "controller._cluster_control:_is_clean",
        "== broker.broker_epoch",
        "> broker.broker_epoch",
        f"{_CLEAN_END}[0-True]",
    ),
    Edit(
        "recovering_leader_cannot_stay_so",
        "controller.partitions._replication_control:_refusal",
        "len(members) > 1 or",
        "len(members) > 0 or",
        "unit/raftctl/controller/test_replication_control.py"
        "::test_a_recovering_leader_stays_so_only_as_long_as_it_is_alone",
    ),
    Edit(
        "unfenced_but_behind",
        "controller._cluster_control:ClusterControl._heartbeat_of_fenced",
        "[change, *changes], caught_up=True",
        "[change, *changes], caught_up=False",
        "unit/raftctl/controller/test_cluster_control.py"
        "::test_a_broker_is_unfenced_once_it_has_replayed_its_registration",
    ),
    Edit(
        "controllers_forgotten_with_any_level",
        "controller.configs._feature_control:_unregistered",
        "if lower else []",
        "if levels else []",
        "unit/raftctl/controller/test_feature_control.py"
        "::test_a_level_other_than_the_metadatas_forgets_no_controller",
    ),
    Edit(
        "level_that_is_so_waits_for_controllers",
        "controller.configs._feature_control:_check",
        "if update.level != present:",
        "if True:",
        "unit/raftctl/controller/test_feature_control.py"
        "::test_to_ask_for_what_is_so_waits_for_nobody_but_must_be_a_question",
    ),
    Edit(
        "any_upgrade_type",
        "controller.configs._feature_control:_check",
        "update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)",
        "False",
        "unit/raftctl/controller/test_feature_control.py"
        "::test_to_ask_for_what_is_so_waits_for_nobody_but_must_be_a_question",
    ),
    Edit(
        "controller_of_one_level_refused",
        "controller._cluster_control:ControllerRegistrations._check",
        "feature.lowest > feature.highest",
        "feature.lowest >= feature.highest",
        "unit/raftctl/controller/test_feature_control.py"
        "::test_a_controller_may_know_one_level_of_a_feature",
    ),
    Edit(
        "registered_controller_refused_when_there_are_many",
        "controller._cluster_control:ControllerRegistrations._check",
        "request.controller_id not in known and ",
        "",
        "unit/raftctl/controller/test_feature_control.py"
        "::test_who_is_registered_may_register_again_however_many_there_are",
    ),
    Edit(
        "addresses_have_no_quota",
        "controller.security._quota_control:_keys",
        "kinds == [IP]",
        "False",
        _ADDRESS_QUOTA,
    ),
    Edit(
        "quota_of_an_address_at_any_value",
        "controller.security._quota_control:_check_value",
        "key in _IP_KEYS and value > INT_MAX",
        "False",
        _ADDRESS_QUOTA,
    ),
)

RPC = (
    Edit(
        "answered_requests_stay_counted",
        "rpc._server:_Connection._reply",
        "self._waiting -= 1",
        "pass",
        "unit/raftctl/rpc/test_rpc.py::test_requests_that_were_answered_are_not_counted_any_more",
    ),
    Edit(
        "given_up_call_kept",
        "rpc._client:_Link.forget",
        "self._pending.pop(correlation_id, None)",
        "pass",
        "unit/raftctl/rpc/test_rpc.py::test_a_call_that_was_given_up_leaves_nothing_behind",
    ),
    Edit(
        "pauses_do_not_grow",
        "rpc._client:RpcClient._back_off",
        "self._failures + 1",
        "self._failures",
        "unit/raftctl/rpc/test_rpc.py::test_pauses_grow_from_loss_to_loss_up_to_a_bound",
    ),
)

EDITS = (*RAFT, *DISK, *LEASES, *CONTROLLER, *RPC)
