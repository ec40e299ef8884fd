"""Edits of what protects a controller's HTTP (rows S6 and S7)."""

from __future__ import annotations

from tests.mutants.edit import Edit

_PAGES = "unit/raftctl/node/test_foreign_pages.py"
_RULES = "unit/raftctl/kv/test_key_rules.py"

EDITS = (
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
        f"{_RULES}::test_a_range_lies_within_what_is_allowed[True]",
    ),
    Edit(
        "keys_are_decided_by_older_rules",
        "kv._rights:KeyRights.require",
        "await self._confirmed()",
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
