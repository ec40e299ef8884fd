"""Small edits of TLS, each with the test that notices it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_TLS = "unit/raftctl/security/tls/"
_CONNECTION = f"{_TLS}test_connection.py"

EDITS = (
    Edit(
        "client_certificate_is_not_verified",
        "security.tls._contexts:server_context",
        "context.verify_mode = _CLIENT_AUTH[settings.client_auth]",
        "context.verify_mode = ssl.CERT_NONE",
        f"{_CONNECTION}::test_a_client_without_a_certificate_is_rejected_where_one_is_required",
    ),
    Edit(
        "name_of_a_server_is_not_checked",
        "security.tls._contexts:client_context",
        "bool(settings.endpoint_identification_algorithm)",
        "False",
        f"{_CONNECTION}::test_a_client_checks_the_servers_name_and_authority",
    ),
    Edit(
        "order_of_mapping_rules_is_ignored",
        "security.tls._mapping:PrincipalMapper.name",
        "for rule in self._rules",
        "for rule in reversed(self._rules)",
        f"{_TLS}test_names.py::test_the_first_rule_that_fits_decides",
    ),
    Edit(
        "rule_fits_where_it_matches_a_part",
        "security.tls._mapping:_Rule.apply",
        "self.pattern.fullmatch(subject)",
        "self.pattern.search(subject)",
        f"{_TLS}test_names.py::test_a_rule_is_for_the_whole_subject",
    ),
    Edit(
        "old_certificate_is_kept_after_a_reload",
        "security.tls._endpoints:ReloadedContext._take",
        "self.newest = loaded.outcome",
        "pass",
        f"{_CONNECTION}::test_a_changed_file_is_loaded_without_a_restart",
    ),
    Edit(
        "certificate_without_a_rule_gets_in",
        "security.tls._endpoints:TlsListener._refusal",
        "name is None",
        "False",
        f"{_CONNECTION}::test_a_subject_without_a_rule_is_rejected",
    ),
    Edit(
        "slow_handshake_is_never_given_up",
        "security.tls._connection:TlsConnection._begin",
        "self._loop.call_later(HANDSHAKE_S, self._too_slow)",
        "self._loop.call_later(HANDSHAKE_S, lambda: None)",
        f"{_CONNECTION}::test_a_silent_peer_is_given_up",
    ),
    Edit(
        "handshakes_are_not_bounded",
        "security.tls._handshakes:Handshakes.wait",
        "len(self) >= HANDSHAKES_MAX",
        "False",
        f"{_CONNECTION}::test_the_slowest_goes_when_there_are_too_many",
    ),
    Edit(
        "key_of_another_certificate_is_taken",
        "security.tls._stores:Identity.check",
        "owned != certified",
        "False",
        f"{_TLS}test_stores.py::test_a_certificate_of_another_key_is_an_error",
    ),
    Edit(
        "who_is_no_node_makes_calls",
        "node._http_access:_operation",
        "Operation.CLUSTER_ACTION",
        "Operation.DESCRIBE",
        "unit/raftctl/node/test_secure_controllers.py::test_who_is_no_node_makes_no_call[alice]",
    ),
    Edit(
        "password_of_a_jks_store_is_not_checked",
        "security.tls._jks:parse_jks",
        "if password is not None:",
        "if False:",
        f"{_TLS}test_stores.py::test_a_trust_store_of_somebody_else_is_not_taken",
    ),
)
