"""Small edits of delegation tokens, each with the test that must notice."""

from __future__ import annotations

from tests.mutants.edit import Edit

_CONTROL = "controller.security._token_control:TokenControl."
_OF_CONTROL = "unit/raftctl/controller/test_tokens.py::test_"
_MODEL = "unit/raftctl/controller/test_tokens_model.py::test_random_requests_about_tokens"
_APIS = "broker.apis.administration._tokens:"
_OF_APIS = "unit/broker/apis/test_tokens.py::test_"
_LOGINS = "unit/broker/server/test_token_logins.py::test_"
_INDEX = "security.delegation_tokens:TokenIndex."

EDITS = (
    Edit(
        "expired_token_is_renewed",
        f"{_CONTROL}_renew",
        "if _is_over(token, now_ms):",
        "if False:",
        f"{_OF_CONTROL}a_token_that_is_over_can_only_be_removed",
    ),
    Edit(
        "renewer_is_not_checked",
        "security.delegation_tokens:may_renew",
        "principal == token.owner or principal in token.renewers",
        "True",
        _MODEL,
    ),
    Edit(
        "requester_renews_the_token_of_another",
        "security.delegation_tokens:may_renew",
        "principal == token.owner",
        "principal in (token.owner, token.requester)",
        f"{_OF_CONTROL}the_owner_and_the_renewers_renew",
    ),
    Edit(
        "renewal_goes_beyond_the_longest_lifetime",
        f"{_CONTROL}_renew",
        "min(token.max_ms, _sum(now_ms, period_ms))",
        "_sum(now_ms, period_ms)",
        f"{_OF_CONTROL}no_renewal_goes_beyond_the_longest_lifetime",
    ),
    Edit(
        "expiry_of_a_token_is_not_checked_for_its_owner",
        f"{_CONTROL}_expire",
        "_check_renewer(token, requester)",
        "pass",
        _MODEL,
    ),
    Edit(
        "token_lives_as_long_as_is_wished",
        "controller.security._token_control:_within",
        "min(wanted_ms, longest_ms)",
        "wanted_ms",
        f"{_OF_CONTROL}lifetimes[10001-10000-4000]",
    ),
    Edit(
        "tokens_that_are_over_stay",
        f"{_CONTROL}sweep",
        "if _is_over(image.tokens[one], wall_ms)",
        "if image.tokens[one].max_ms < wall_ms",
        f"{_OF_CONTROL}tokens_that_are_over_are_removed_at_the_next_check",
    ),
    Edit(
        "valid_tokens_are_swept",
        f"{_CONTROL}sweep",
        "if _is_over(image.tokens[one], wall_ms)",
        "if image.tokens[one].expires_ms <= wall_ms + 1",
        _MODEL,
    ),
    Edit(
        "owner_of_another_type_becomes_a_user",
        f"{_CONTROL}_create",
        "if any(kind != _USER for kind, _ in named):",
        "if any(kind != _USER for kind, _ in request.renewers):",
        f"{_OF_CONTROL}only_users_own_and_renew_tokens[owner0]",
    ),
    Edit(
        "one_user_takes_all_the_room",
        "controller.security._token_control:_check_room",
        "if own >= TOKENS_OF_REQUESTER_MAX:",
        "if False:",
        f"{_OF_CONTROL}names_and_numbers_have_bounds",
    ),
    Edit(
        "hmac_is_compared_by_equality",
        f"{_INDEX}find",
        "not hmac.compare_digest(self._secret.hmac(token_id), given)",
        "self._secret.hmac(token_id) != given",
        f"{_OF_CONTROL}hmacs_are_compared_in_constant_time_and_the_index_keeps_none",
    ),
    Edit(
        "index_of_tokens_keeps_what_is_gone",
        f"{_INDEX}find",
        "if tokens is not self._tokens:",
        "if self._tokens is None or len(tokens) > len(self._tokens):",
        f"{_OF_CONTROL}the_index_follows_every_image",
    ),
    Edit(
        "tokens_for_anybody_need_no_right",
        "node._forwarded_requests:_Screening.token",
        "if owner == self._requester.principal:",
        "if owner:",
        "unit/raftctl/node/test_forwarded_requests.py::"
        "test_a_token_for_somebody_else_needs_a_right_on_that_user",
    ),
    Edit(
        "token_makes_tokens",
        f"{_APIS}_check_connection",
        "is_open or is_one_way or connection.token_id is not None",
        "is_open or is_one_way",
        f"{_OF_APIS}who_has_not_authenticated_or_only_by_a_token_gets_none[principal3-connection3]",
    ),
    Edit(
        "tokens_are_given_over_plaintext",
        f"{_APIS}_check_connection",
        "is_open or is_one_way or",
        "is_one_way or",
        f"{_OF_APIS}who_has_not_authenticated_or_only_by_a_token_gets_none[principal0-connection0]",
    ),
    Edit(
        "tokens_are_given_over_one_way_tls",
        f"{_APIS}_check_connection",
        "is_open or is_one_way or",
        "is_open or",
        f"{_OF_APIS}who_has_not_authenticated_or_only_by_a_token_gets_none[principal2-connection2]",
    ),
    Edit(
        "everybody_sees_all_tokens",
        f"{_APIS}_may_see",
        "if str(request.context.connection.principal) in concerned(token):",
        "if concerned(token):",
        f"{_OF_APIS}who_sees_which_tokens",
    ),
    Edit(
        "removed_token_is_served_on",
        "broker.authentication._verifiers:Verifiers.has_token",
        "token_id in self._image().tokens",
        "True",
        f"{_LOGINS}a_token_that_is_removed_ends_its_connections_and_no_others",
    ),
    Edit(
        "removed_token_logs_in",
        "broker.authentication._verifiers:Verifiers._find_token",
        "self._image().tokens.get(token_id)",
        'self.__dict__.setdefault("old", dict(self._image().tokens)).get(token_id)',
        f"{_LOGINS}a_session_is_not_renewed_with_a_token_that_is_removed",
    ),
    Edit(
        "login_with_a_token_does_not_say_so",
        "broker.authentication._authenticator:Authenticator._succeed",
        "client.principal, client.token_id = principal, login.token_id",
        "client.principal = principal",
        f"{_LOGINS}a_client_with_a_token_may_not_have_another",
    ),
    Edit(
        "session_outlives_its_token",
        "security.delegation_tokens:token_credential",
        "token.expires_ms",
        "token.max_ms + 10**9",
        f"{_LOGINS}a_client_with_a_token_acts_for_its_owner[SCRAM-SHA-256]",
    ),
    Edit(
        "token_acts_for_its_requester",
        "security.delegation_tokens:token_credential",
        "Principal.parse(token.owner)",
        "Principal.parse(token.requester)",
        f"{_LOGINS}a_client_with_a_token_acts_for_its_owner[SCRAM-SHA-256]",
    ),
    Edit(
        "password_logs_in_as_a_token",
        "broker.authentication._verifiers:Verifiers._find_scram",
        "if by_token:",
        "if by_token and user in self._image().tokens:",
        f"{_LOGINS}a_token_and_a_user_are_not_the_same_though_they_have_one_name",
    ),
)
