"""Edits of what protects a controller's HTTP (rows S6 and S7)."""

from __future__ import annotations

from tests.mutants.edit import Edit

_PAGES = "unit/raftctl/node/test_foreign_pages.py"
_LOGINS = "unit/raftctl/node/test_controller_logins.py"
_RULES = "unit/raftctl/kv/test_key_rules.py"

EDITS = (
    Edit(
        "credentials_that_nobody_looks_at_are_taken",
        "node._http_access:no_logins",
        '"Authorization" in request.headers',
        "False",
        f"{_PAGES}::test_credentials_are_refused_where_nobody_logs_in",
    ),
    Edit(
        "secrets_that_all_may_read_are_no_warning",
        "cli.files:read_config_file",
        "RealFileSystem().is_readable_by_all(path)",
        "False",
        "unit/raftctl/cli/test_file_modes.py::"
        "test_a_configuration_with_secrets_that_all_may_read[all]",
    ),
    Edit(
        "login_between_nodes_that_is_not_in_force_is_taken",
        "config._security_checks:_idle_keys",
        "yield from _idle_logins(node)",
        "yield from ()",
        "unit/raftctl/config/test_listeners.py::"
        "test_a_key_that_nothing_looks_at_is_an_error[brokers]",
    ),
    Edit(
        "fault_is_watched_by_nobody_who_logs_in",
        "jepsen.environments.external:Witness.open",
        "not login.has_user",
        "True",
        "unit/jepsen/environments/test_login.py::test_a_broker_is_watched_by_who_logs_in[PLAIN]",
    ),
    Edit(
        "password_goes_to_another_machine_in_the_clear",
        "http_security:HttpSecurity.check",
        "has_secret and self.tls is None and not is_loopback",
        "False",
        "unit/raftctl/test_http_security.py::"
        "test_a_password_does_not_go_to_another_machine_in_the_clear[10.0.0.7:9093]",
    ),
    Edit(
        "node_that_does_not_log_in_makes_calls",
        "rpc._server:RpcServer._serve",
        'login = None if self._login is None else self._login(request.remote or "")',
        "login = None",
        f"{_LOGINS}::test_a_node_that_does_not_try_to_log_in_makes_no_call",
    ),
    Edit(
        "every_user_acts_as_a_node",
        "node._logins:RpcLogin.take",
        "self._admit(login)",
        "pass",
        f"{_LOGINS}::test_who_may_not_act_as_a_node_makes_no_call",
    ),
    Edit(
        "credentials_of_the_format_count_for_ever",
        "node._http_listener:scram_credentials",
        "formatted if known.offset < 0 else known.scram",
        "{**known.scram, **formatted}",
        f"{_LOGINS}::test_a_node_logs_in_by_scram_before_there_is_metadata",
    ),
    Edit(
        "old_password_is_still_known",
        "node._logins:ControllerLogins._log_in_by_password",
        "known.credential == self._record(known.mechanism, known.login)",
        "known.login",
        f"{_LOGINS}::test_a_password_counts_until_it_is_changed",
    ),
    Edit(
        "passwords_are_taken_in_the_clear",
        "node._http_access:http_logins",
        "not is_tls and not _is_loopback(host)",
        "False",
        f"{_LOGINS}::test_credentials_are_not_taken_from_elsewhere_without_tls",
    ),
    Edit(
        "range_is_allowed_though_a_key_in_it_is_denied",
        "security._rules:_TypeIndex.decide_prefix",
        "self._within(prefix)",
        "()",
        f"{_RULES}::test_a_range_lies_within_what_is_allowed[True]",
    ),
    Edit(
        "range_is_allowed_by_a_rule_for_a_part_of_it",
        "security._rules:_TypeIndex.decide_prefix",
        "self._covering(prefix)",
        "(*self._covering(prefix), *self._within(prefix))",
        "unit/raftctl/security/test_prefixes.py::"
        "test_what_is_allowed_for_a_prefix_is_allowed_for_each_name",
    ),
    Edit(
        "keys_are_decided_by_older_rules",
        "kv._rights:KeyRights.require",
        "await self.confirm()",
        "pass",
        f"{_RULES}::test_a_right_that_is_revoked_is_not_used_on_any_controller",
    ),
    Edit(
        "watch_outlives_its_right",
        "kv._watch:KvWatches._step",
        "watch.check_right()",
        "pass",
        f"{_RULES}::test_a_watch_ends_with_its_right",
    ),
    Edit(
        "value_is_learned_by_guessing",
        "kv._http:_require_write",
        "() if expected is None else (key,)",
        "()",
        f"{_RULES}::test_keys_are_read_and_written_by_rules[True]",
    ),
    Edit(
        "session_is_closed_by_somebody_else",
        "kv._http:KvApi._close_session",
        "await rights.require(WRITE, *session.keys, *session.locks)",
        "pass",
        f"{_RULES}::test_locks_and_sessions_are_of_those_who_may_write_them",
    ),
    Edit(
        "name_of_another_site_is_served",
        "node._http_access:no_foreign_pages",
        "_normal(_without_port(host)) not in hosts",
        "not host",
        f"{_PAGES}::test_a_name_that_was_made_to_resolve_to_a_node_is_refused"
        "[evil.example.org:9093]",
    ),
    Edit(
        "page_of_another_site_is_served",
        "node._http_access:no_foreign_pages",
        '"Origin" in request.headers',
        "False",
        f"{_PAGES}::test_a_request_of_a_page_is_refused_whatever_it_asks_for[/page]",
    ),
)
