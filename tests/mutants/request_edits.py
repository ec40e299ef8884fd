"""Small edits of connections and handlers that an invariant finds at once, each with its test."""

from __future__ import annotations

from tests.mutants.edit import Edit

_UNIT = "unit/broker/"

EDITS = (
    Edit(
        "permit_is_given_back_and_was_not_taken",
        "broker.server._connection:Connection._start_next",
        "self._limits.permits -= waiting.permit",
        "pass",
        f"{_UNIT}server/test_connection.py::test_produce_behind_a_waiting_one_is_bounded",
    ),
    Edit(
        "produce_overtakes_one_that_has_not_acted",
        "broker.server._connection:Connection._start_next",
        "self._pipelining and",
        "True and",
        f"{_UNIT}server/test_connection.py::test_no_produce_starts_behind_one_that_has_not_appended_all_it_can",
    ),
    Edit(
        "connection_starts_requests_without_end",
        "broker.server._connection:Connection._start_next",
        "and count < PIPELINED_MAX",
        "and True",
        f"{_UNIT}server/test_connection.py::test_produce_behind_a_waiting_one_is_bounded",
    ),
    Edit(
        "sent_bytes_still_count",
        "broker.server._connection:Outbox._advance",
        "self.size -= count",
        "pass",
        f"{_UNIT}server/test_outbox.py::test_a_sender_and_the_transport_take_turns_without_losing_the_order",
    ),
    Edit(
        "sent_piece_stays_the_first",
        "broker.server._connection:Outbox._advance",
        "count >= len(self._pieces[0])",
        "count > len(self._pieces[0])",
        f"{_UNIT}server/test_outbox.py::test_a_part_of_a_file_is_read_only_as_far_as_the_connection_takes_it",
    ),
    Edit(
        "batch_is_appended_twice",
        "broker.apis.data._produce:_append_prepared",
        "results = append(entries)",
        "results = append([*entries, *entries])",
        f"{_UNIT}apis/test_data.py::test_produce_appends_and_tells_the_offset[1-3]",
    ),
    Edit(
        "producer_id_is_given_twice",
        "broker.apis.handler._producer_ids:ProducerIds.take",
        "self._current[0], self._current[1:]",
        "self._current[0], self._current",
        f"{_UNIT}apis/test_admin.py::test_producer_ids_are_never_given_twice",
    ),
    Edit(
        "session_that_ended_still_counts",
        "broker.apis.handler.fetch_sessions:FetchSessions._remove",
        "self._partitions -= len(session.partitions)",
        "pass",
        f"{_UNIT}apis/test_fetch_sessions.py::test_the_cache_is_bounded_and_who_ranks_higher_makes_room",
    ),
    Edit(
        "one_session_too_many",
        "broker.apis.handler.fetch_sessions:FetchSessions._create",
        "len(self._sessions) >= self._slots",
        "len(self._sessions) > self._slots",
        f"{_UNIT}apis/test_fetch_sessions.py::test_the_cache_is_bounded_and_who_ranks_higher_makes_room",
    ),
    Edit(
        "partitions_that_a_session_adds_do_not_count",
        "broker.apis.handler.fetch_sessions:FetchSessions._continue",
        "self._partitions += len(session.partitions) - size",
        "pass",
        f"{_UNIT}apis/test_fetch_sessions.py::test_a_client_with_a_session_knows_what_one_without_would",
    ),
    Edit(
        "session_that_was_used_stays_the_oldest",
        "broker.apis.handler.fetch_sessions:FetchSessions._continue",
        "self._sessions[session.id] = self._sessions.pop(session.id)",
        "pass",
        f"{_UNIT}apis/test_fetch_sessions.py::test_a_session_that_is_used_is_the_newest",
    ),
    Edit(
        "controller_is_not_told_which_request_it_is",
        "broker.apis.handler.forwarding:ask_controller",
        "Origin(client.request_id, ",
        'Origin("", ',
        "unit/raftctl/node/test_followed_requests.py::test_a_creation_is_followed_from_the_broker_to_the_controller",
    ),
    Edit(
        "request_is_named_after_it_is_over",
        "broker.request_context:RequestContext.followed_id",
        '"" if self.sent_at else self.request_id',
        "self.request_id",
        f"{_UNIT}server/test_connection.py::test_a_request_is_followed_until_its_answer_has_left",
    ),
    Edit(
        "every_slow_request_has_a_line",
        "broker.metrics._requests:RequestTimes._log_slow",
        "self._lines >= SLOW_LINES_PER_SECOND_MAX",
        "False",
        f"{_UNIT}metrics/test_requests.py::test_a_storm_of_slow_requests_has_few_lines_and_a_count_of_the_others",
    ),
    Edit(
        "slow_produce_accuses_nobody",
        "broker.replication.partition._partition:Partition.follower_fetched",
        "self.advance(now_ms, params.replica_id)",
        "self.advance(now_ms)",
        f"{_UNIT}replication/test_produce_waits.py::test_it_names_the_replica_that_was_the_last_to_have_the_records",
    ),
    Edit(
        "controller_begins_a_trace_of_its_own",
        "node._forwarded_log:ForwardedLog._record",
        "tracer.record(name, span, parent, ",
        "tracer.record(name, span, None, ",
        "unit/raftctl/node/test_followed_requests.py::test_one_trace_spans_broker_and_controller",
    ),
    Edit(
        "every_request_is_traced",
        "tracing._spans:Tracer.sample",
        "self._random.random() >= self._ratio",
        "self._ratio == 0",
        "unit/raftctl/tracing/test_spans.py::test_a_share_of_requests_begins_a_trace",
    ),
)
