"""Small edits of logins and sessions, each with the test that must notice."""

from __future__ import annotations

from tests.mutants.edit import Edit

_SASL = "unit/raftctl/security/sasl/"
_BROKER = "unit/broker/server/test_sasl.py::test_"
_SCRAM = "security.sasl.scram:ScramServer."
_AUTHENTICATOR = "broker.authentication._authenticator:Authenticator."

EDITS = (
    Edit(
        "proof_is_not_checked",
        f"{_SCRAM}_end",
        "if not (is_proved and is_known):",
        "if not is_known:",
        f"{_SASL}test_scram.py::test_a_wrong_password_does_not",
    ),
    Edit(
        "unknown_user_logs_in_with_a_proof",
        f"{_SCRAM}_end",
        "if not (is_proved and is_known):",
        "if not is_proved:",
        f"{_SASL}test_scram.py::test_nobody_logs_in_with_the_stand_in_of_an_unknown_user",
    ),
    Edit(
        "unknown_user_fails_at_once",
        f"{_SCRAM}_begin",
        "is_known = credential is not None",
        "is_known = credential is not None\n"
        "    if not is_known:\n"
        '        raise SaslError("no such user")',
        f"{_SASL}test_scram.py::test_the_salt_of_an_unknown_user_is_stable",
    ),
    Edit(
        "salt_of_an_unknown_user_is_of_the_connection",
        f"{_SCRAM}_stand_in",
        "user.encode()",
        "(user + self._nonce).encode()",
        f"{_SASL}test_scram.py::test_the_salt_of_an_unknown_user_is_stable",
    ),
    Edit(
        "known_user_costs_less",
        f"{_SCRAM}_begin",
        "stand_in = self._stand_in(message.user)",
        "stand_in = None if credential else self._stand_in(message.user)",
        f"{_SASL}test_scram.py::test_an_unknown_user_fails_where_a_wrong_password_does",
    ),
    Edit(
        "expired_delegation_token_logs_in",
        f"{_SCRAM}_end",
        "expires_ms <= now_ms",
        "expires_ms < now_ms - 10**6",
        f"{_SASL}test_scram.py::test_an_expired_delegation_token_does_not_log_in",
    ),
    Edit(
        "client_takes_few_iterations",
        "security.sasl.scram:ScramClient._prove",
        "if not ITERATIONS_MIN <= server.iterations <= ITERATIONS_MAX:",
        "if server.iterations > ITERATIONS_MAX:",
        f"{_SASL}test_scram.py::test_a_client_bounds_the_iterations[1]",
    ),
    Edit(
        "client_trusts_any_server",
        "security.sasl.scram:ScramClient._verify",
        "if not hmac.compare_digest(read_server_final(challenge), self._signature):",
        "if not read_server_final(challenge):",
        f"{_SASL}test_scram.py::test_a_client_does_not_trust_a_server_without_the_password[wrong]",
    ),
    Edit(
        "unknown_user_of_plain_costs_less",
        "security.sasl._plain:PlainServer.evaluate",
        "is_equal = hmac",
        "is_equal = expected is not None and hmac",
        f"{_SASL}test_plain.py::test_an_unknown_user_fails_as_a_wrong_password_does",
    ),
    Edit(
        "password_of_plain_is_not_checked",
        "security.sasl._plain:PlainServer.evaluate",
        "if not is_equal or expected is None:",
        "if expected is None:",
        f"{_SASL}test_plain.py::test_the_password_decides",
    ),
    Edit(
        "shared_keys_verify_tokens",
        "security.sasl.tokens:TokenValidator.validate",
        'if header.get("alg") not in ALGORITHMS:',
        "if False:",
        f"{_SASL}test_tokens.py::test_a_forged_token_is_refused[HS256 over a shared key]",
    ),
    Edit(
        "token_never_expires",
        "security.sasl.tokens:TokenValidator._checked",
        "if expires + skew <= now:",
        "if False:",
        f"{_SASL}test_tokens.py::test_a_token_with_a_wrong_claim_is_refused[change1-expired]",
    ),
    Edit(
        "token_for_another_audience_is_taken",
        "security.sasl.tokens:TokenValidator._checked",
        "if rules.audiences and not any(one in rules.audiences for one in named):",
        "if False:",
        f"{_SASL}test_tokens.py::test_a_token_with_a_wrong_claim_is_refused[change8-audience]",
    ),
    Edit(
        "issuer_is_asked_for_every_invented_key",
        "security.sasl.tokens:IssuerKeys._begin",
        "now < tried_at + self._pause",
        "False",
        f"{_SASL}test_tokens.py::test_keys_are_fetched_for_an_unknown_one_with_pauses",
    ),
    Edit(
        "unknown_mechanism_is_accepted",
        f"{_AUTHENTICATOR}_take_handshake",
        "if error:",
        "if False:",
        f"{_BROKER}a_mechanism_that_is_not_enabled_is_refused_with_the_list",
    ),
    Edit(
        "session_never_expires",
        f"{_AUTHENTICATOR}_succeed",
        "if lifetime_ms is not None:",
        "if False:",
        f"{_BROKER}a_session_that_has_expired_ends_with_the_next_request",
    ),
    Edit(
        "expired_session_is_served",
        f"{_AUTHENTICATOR}serve",
        "self._loop.time() >= expires_at",
        "False",
        f"{_BROKER}a_session_that_has_expired_ends_with_the_next_request",
    ),
    Edit(
        "handshake_is_skipped",
        f"{_AUTHENTICATOR}_take_request",
        "if tokens_follow:",
        "if key == ApiKey.SASL_AUTHENTICATE:\n"
        '        sasl.exchange = sasl.exchange or self._verifiers.begin("PLAIN")\n'
        '        sasl.mechanism = "PLAIN"',
        f"{_BROKER}any_other_request_ends_the_connection_with_one_line[first-3]",
    ),
    Edit(
        "requests_are_served_before_authentication",
        f"{_AUTHENTICATOR}_take_request",
        'raise HangUpError(f"api {key} before authentication")',
        "return self._serve(frame, context)",
        f"{_BROKER}any_other_request_ends_the_connection_with_one_line[first-0]",
    ),
    Edit(
        "requests_are_served_during_a_renewal",
        f"{_AUTHENTICATOR}_take_request",
        "if tokens_follow and key != ApiKey.SASL_AUTHENTICATE:",
        "if sasl.is_renewal and key not in _BEFORE:\n"
        "        return self._serve(frame, context)\n"
        "    if tokens_follow and key != ApiKey.SASL_AUTHENTICATE:",
        f"{_BROKER}requests_wait_for_the_end_of_a_renewal",
    ),
    Edit(
        "principal_changes",
        f"{_AUTHENTICATOR}_succeed",
        "if sasl.is_renewal and principal != client.principal:",
        "if False:",
        f"{_BROKER}a_renewal_changes_neither_principal_nor_mechanism",
    ),
    Edit(
        "mechanism_changes",
        f"{_AUTHENTICATOR}_take_handshake",
        "if not sasl.is_renewal or mechanism == sasl.mechanism:",
        "if True:",
        f"{_BROKER}a_renewal_changes_neither_principal_nor_mechanism",
    ),
    Edit(
        "failed_connection_stays",
        f"{_AUTHENTICATOR}_fail",
        "client.refusal = reason",
        "pass",
        f"{_BROKER}a_failed_renewal_ends_the_connection",
    ),
    Edit(
        "failure_is_answered_at_once",
        f"{_AUTHENTICATOR}_later",
        "await asyncio.sleep(self._failure_delay)",
        "await asyncio.sleep(0)",
        f"{_BROKER}only_the_answer_to_a_failure_is_delayed",
    ),
    Edit(
        "answer_reveals_the_reason",
        f"{_AUTHENTICATOR}_fail_login",
        "text = error.answer or",
        'text = f"{error} {sasl.exchange.__dict__}" or',
        f"{_BROKER}the_answer_to_a_failure_does_not_reveal_whether_the_user_exists",
    ),
    Edit(
        "frames_before_authentication_are_not_bounded",
        "broker.server._connection:Connection._may_go_on",
        "if not sasl.has_authenticated:",
        "if False:",
        f"{_BROKER}a_frame_before_authentication_is_bounded[first]",
    ),
    Edit(
        "connections_wait_without_end",
        "broker.server._connection:Connection._watch_idleness",
        "if self._must_log_in and",
        "if False and",
        f"{_BROKER}who_does_not_authenticate_in_time_is_dropped",
    ),
    Edit(
        "removed_credential_still_counts",
        "broker.authentication._verifiers:Verifiers._find_scram",
        "record = self._image()",
        'record = self.__dict__.setdefault("old", self._image())',
        f"{_BROKER}credentials_of_the_newest_image_count[SCRAM-SHA-256]",
    ),
)
