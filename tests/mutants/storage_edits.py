"""Small edits of the metadata log's files, each with the test that notices it."""

from __future__ import annotations

from tests.mutants.edit import Edit

EDITS = (
    Edit(
        "segments_synced_newest_first",
        "storage.log_writer:LogWriter.perform",
        "in operations:",
        "in reversed(operations):",
        "unit/storage/test_sync_order.py::test_a_segment_is_synced_before_the_next_is_written",
    ),
    Edit(
        "appends_not_synced",
        "storage.log_writer:LogWriter.perform",
        "file.sync()",
        "file.size()",
        "unit/storage/test_sync_order.py::test_a_segment_is_synced_before_the_next_is_written",
    ),
    Edit(
        "new_segment_name_not_synced",
        "storage.log_writer:LogWriter._file",
        "self._files.sync_directory(self._directory)",
        "pass",
        "unit/storage/test_sync_order.py::test_power_may_go_between_any_two_steps_of_a_flush",
    ),
    Edit(
        "cut_not_synced",
        "storage.log_writer:LogWriter._cut",
        "file.sync()",
        "file.size()",
        "unit/storage/test_sync_order.py::test_a_truncation_that_was_flushed_is_not_undone[5-cut]",
    ),
    Edit(
        "cut_before_the_note_is_lowered",
        "storage.log_writer:LogWriter._cut",
        "self._point.lower(cut.end_offset)",
        "pass",
        "unit/storage/test_sync_order.py::test_power_may_go_between_any_two_steps_of_a_truncation[cut]",
    ),
    Edit(
        "removal_not_synced",
        "storage.log_writer:LogWriter._delete",
        "self._files.sync_directory(self._directory)",
        "pass",
        "unit/storage/test_sync_order.py::test_a_truncation_that_was_flushed_is_not_undone[0-cut]",
    ),
    Edit(
        "cut_from_the_front",
        "storage.log_writer:LogWriter._cut",
        "reversed(cut.removed)",
        "cut.removed",
        "unit/storage/test_sync_order.py::test_power_may_go_between_any_two_steps_of_a_truncation[cut]",
    ),
    Edit(
        "lowered_note_not_synced",
        "storage.recovery_point:RecoveryPoint.lower",
        "self._file.sync()",
        "self._file.size()",
        "unit/storage/test_log_damage.py::test_the_note_is_lowered_before_the_log_is_cut_and_synced_when_it_is_closed",
    ),
    Edit(
        "note_believed_without_checksum",
        "storage.recovery_point:_offset_in",
        " or data[_OFFSET.size :] != _checksum(data)",
        "",
        "unit/storage/test_log_damage.py::test_a_note_that_cannot_be_read_is_no_note",
    ),
    Edit(
        "vote_believed_without_checksum",
        "storage.quorum_state:QuorumStateStore.load",
        "checksum != _checksum(fields)",
        "checksum is None",
        "unit/storage/test_small_files.py::test_any_flipped_bit_is_seen_and_names_the_file",
    ),
    Edit(
        "newest_snapshot_expires",
        "storage.retention:RetentionPolicy.expired",
        "len(snapshots) - 1",
        "len(snapshots)",
        "unit/storage/test_snapshots.py::test_retention_deletes_the_oldest_and_never_the_newest[125--1-1]",
    ),
    Edit(
        "damage_in_a_middle_segment_cut",
        "storage.segment:why_not_torn",
        "if not last:",
        "if False:",
        "unit/storage/test_log_damage.py::test_a_missing_or_shortened_segment_stops",
    ),
    Edit(
        "durable_tail_cut_as_torn",
        "storage.segment:why_not_torn",
        "recovery_point is not None and end_offset < recovery_point",
        "False",
        "unit/storage/test_log_damage.py::test_a_shortened_tail_that_was_durable_stops",
    ),
    Edit(
        "durable_batches_cut_as_torn",
        "storage.segment:why_not_torn",
        "end_offset < recovery_point",
        "end_offset > recovery_point",
        "unit/storage/test_record_log.py::test_a_reset_log_goes_on_from_the_snapshot_whenever_the_crash_comes",
    ),
    Edit(
        "retention_counts_the_gone",
        "storage.retention:RetentionPolicy.expired",
        "snapshots[gone:]",
        "snapshots",
        "unit/storage/test_snapshots.py::test_retention_deletes_the_oldest_and_never_the_newest[125--1-1]",
    ),
    Edit(
        "removal_of_all_from_the_front",
        "storage.log_writer:LogWriter._remove",
        "if whole else",
        "if not whole else",
        "unit/storage/test_sync_order.py::test_power_may_go_between_any_two_steps_of_the_removal_of_a_prefix",
    ),
)
