"""Small edits of what happens to hostile peers, each with the test that notices it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_HOSTILE = "unit/broker/server/test_hostile_peers.py::test_"
_CONNECTION = "broker.server._connection:Connection."

EDITS = (
    Edit(
        "dropped_connection_has_two_lines",
        f"{_CONNECTION}_report",
        "if not self._is_reported:",
        "if True:",
        f"{_HOSTILE}who_does_not_log_in_is_dropped_with_one_line[trickle]",
    ),
    Edit(
        "who_leaves_before_a_login_has_no_line",
        f"{_CONNECTION}connection_lost",
        "elif self._must_log_in:",
        "elif False:",
        f"{_HOSTILE}who_leaves_before_a_login_has_a_line[between frames]",
    ),
    Edit(
        "broken_tls_has_two_lines",
        f"{_CONNECTION}connection_lost",
        "isinstance(exc, ssl.SSLError)",
        "False",
        f"{_HOSTILE}a_broken_record_within_a_request_is_one_line",
    ),
    Edit(
        "unread_answer_holds_a_connection",
        f"{_CONNECTION}_leave",
        "self._idle_timer.set(self._loop.time() + LINGER_SECONDS)",
        "pass",
        f"{_HOSTILE}a_peer_that_never_reads_does_not_hold_a_connection",
    ),
    Edit(
        "login_may_take_for_ever",
        f"{_CONNECTION}_watch_idleness",
        "self._must_log_in and",
        "False and",
        f"{_HOSTILE}who_does_not_log_in_is_dropped_with_one_line[silence]",
    ),
    Edit(
        "time_to_log_in_runs_before_the_door",
        f"{_CONNECTION}_begin",
        "self._made_at = self.active_at = self._loop.time()",
        "pass",
        f"{_HOSTILE}the_time_of_who_waits_to_be_let_in_does_not_run",
    ),
    Edit(
        "reset_handshake_has_no_address",
        "security.tls._connection:TlsConnection.connection_made",
        'self.peer = transport.get_extra_info("peername")',
        "pass",
        f"{_HOSTILE}who_resets_its_connection_in_a_handshake_is_named",
    ),
    Edit(
        "header_of_a_token_is_any_json",
        "security.sasl.tokens:TokenValidator.validate",
        "if not isinstance(header, dict):",
        "if False:",
        "unit/raftctl/security/sasl/test_tokens.py::test_a_forged_token_is_refused"
        "[header is a list]",
    ),
    Edit(
        "retention_beyond_all_time_fits_into_no_record",
        "broker.apis.consumer._group_offsets:_committed",
        "min(wall_ms + retention_ms, _TIMESTAMP_MAX)",
        "wall_ms + retention_ms",
        "unit/broker/apis/test_groups.py::test_a_retention_beyond_all_time_is_kept_until_then",
    ),
    Edit(
        "lost_connection_is_a_cycle",
        f"{_CONNECTION}_let_go",
        "self._mute_timer.close()",
        "self._mute_timer.set(None)",
        "unit/broker/server/test_connection.py::test_a_lost_connection_is_freed_without_a_collection"
        "_of_garbage",
    ),
    Edit(
        "lost_connection_of_tls_keeps_its_protocol",
        "security.tls._connection:TlsConnection.connection_lost",
        "self.inner, self._gate = asyncio.BaseProtocol(), None",
        "pass",
        "unit/broker/server/test_tls.py::test_a_lost_connection_of_tls_is_freed_without_a_collection",
    ),
    Edit(
        "receive_buffer_takes_its_memory_at_once",
        "broker.protocol._frames:_receive_buffer",
        "mmap.mmap(-1, RECEIVE_BYTES, flags=private)",
        "bytearray(RECEIVE_BYTES)",
        "unit/broker/protocol/test_frames.py::test_memory_is_taken_only_for_what_was_received",
    ),
)
