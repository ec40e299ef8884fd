"""Small edits of quotas, each with the test that finds it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_SOCKETS = "unit/broker/server/test_quotas.py"
_SERVER = "unit/broker/server/"
_QUOTAS = "unit/broker/quotas/"
_AT_ONCE = "test_a_produce_is_answered_at_once_and_its_connection_is_muted"

EDITS = (
    Edit(
        "throttle_time_is_not_in_the_answer",
        "broker.apis.handler.throttling:finished",
        '{**answer, "throttle_time_ms": request.context.throttle_ms}',
        "answer",
        f"{_SOCKETS}::{_AT_ONCE}",
    ),
    Edit(
        "throttled_connection_is_not_muted",
        "broker.apis.handler.throttling:_mute",
        "connection.muted_until = max(connection.muted_until, muted_until)",
        "pass",
        f"{_SOCKETS}::{_AT_ONCE}",
    ),
    Edit(
        "throttled_fetch_loses_its_session",
        "broker.apis.handler.fetch_sessions:FetchSessions.withhold",
        "if not turn.incremental:",
        "if True:",
        f"{_SOCKETS}::test_a_throttled_fetch_is_empty_and_its_session_goes_on",
    ),
    Edit(
        "records_that_were_not_sent_count",
        "broker.apis.handler.throttling:fetched",
        "_record(context, request, QuotaType.FETCH, -size, now)",
        "pass",
        f"{_SOCKETS}::test_a_throttled_fetch_is_empty_and_its_session_goes_on",
    ),
    Edit(
        "default_quota_goes_before_the_users_own",
        "broker.quotas._scopes:_candidates",
        'yield (named,), (user, "")\n            yield (client, of_all), both',
        'yield (of_all,), (user, "")\n            yield (client, of_all), both',
        f"{_QUOTAS}test_client_quotas.py::test_the_most_specific_quota_goes_before_a_default",
    ),
    Edit(
        "followers_are_throttled",
        "broker.apis.data._fetch:_is_throttled",
        "_replica_id(request.body) != CONSUMER",
        "False",
        f"{_SOCKETS}::test_brokers_are_exempt",
    ),
    Edit(
        "first_window_counts_alone",
        "broker.quotas._rates:SampledRate._elapsed_ms",
        "max(missing, 0)",
        "0",
        f"{_QUOTAS}test_rates.py::test_the_first_request_is_spread_over_windows_that_were_empty",
    ),
    Edit(
        "clients_are_measured_without_end",
        "broker.quotas._usages:Usages.of",
        "len(usages) > SCOPES_MAX or",
        "False or",
        f"{_QUOTAS}test_client_quotas.py::test_what_clients_used_is_bounded_and_expires",
    ),
    Edit(
        "brokers_share_the_connection_rate_of_clients",
        "broker.quotas._connection_rates:ConnectionRates.accept",
        "if listener != self._protected:",
        "if True:",
        f"{_QUOTAS}test_connection_rates.py::test_clients_do_not_use_up_the_rate_of_brokers",
    ),
    Edit(
        "connections_beyond_the_limit_come_in",
        "broker.server._connection_limits:ConnectionLimits._has_slot",
        "len(self._connections) < self._connections_max",
        "True",
        f"{_SERVER}test_connection_limits.py"
        "::test_listeners_of_clients_share_the_bound_of_the_broker",
    ),
    Edit(
        "who_waits_for_a_connection_to_go_is_forgotten",
        "broker.server._connection_limits:ConnectionLimits._advance_gates",
        "gate.advance()",
        "pass",
        f"{_SERVER}test_connection_limits.py::test_a_listener_may_have_a_bound_of_its_own",
    ),
    Edit(
        "handshakes_of_tls_are_not_counted",
        "security.tls._connection:TlsConnection.connection_made",
        "if self._gate is None:",
        "if True:",
        f"{_SERVER}test_connection_limits.py"
        "::test_connections_of_tls_are_counted_before_their_handshake",
    ),
    Edit(
        "another_store_of_a_listener_is_not_loaded",
        "broker.server._connection:Listeners.reconfigure",
        "tls.update(settings)",
        "pass",
        f"{_SERVER}test_listener_configs.py::test_another_store_is_in_force_for_new_connections",
    ),
    Edit(
        "secrets_of_listeners_are_described",
        "broker.apis.administration._configs:_hidden",
        "None if is_secret(name) else value",
        "value",
        "unit/broker/apis/test_alter_configs.py::test_a_store_of_a_listener_changes",
    ),
    Edit(
        "changes_that_are_denied_are_counted",
        "broker.apis.administration._topics:_deleted_partitions",
        "topic is None or not _may(context, request, Operation.DELETE, topic.name)",
        "topic is None",
        f"{_SOCKETS}::test_what_the_quota_says_does_not_depend_on_topics_that_are_hidden",
    ),
    Edit(
        "a_config_brings_a_certificate_of_anybody",
        "security.tls._stores:check_names",
        "if names != before:",
        "if False:",
        f"{_SERVER}test_listener_configs.py"
        "::test_another_certificate_has_the_names_of_the_one_before_it[other-hosts1-True]",
    ),
)
