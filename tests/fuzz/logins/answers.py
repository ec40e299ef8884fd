"""What a peer without a login may be answered: no more than Apache Kafka answers.

Source: Apache Kafka's SaslServerAuthenticator (handleKafkaRequest, handleHandshakeRequest,
handleApiVersionsRequest, handleSaslToken), PlainSaslServer and OAuthBearerSaslServer. Before a
login it answers three requests. An error of a login is SASL_AUTHENTICATION_FAILED with the text of
PlainSaslServer, or with one sentence for all failures of a mechanism.
"""

from __future__ import annotations

import re
from typing import Any

from broker.protocol import codec
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode
from tests.fuzz.logins.broker import MECHANISMS

ANSWER_BYTES_MAX = 4_096
"""Of one answer: ApiVersions has the longest."""
_ERRORS = {
    ApiKey.API_VERSIONS: (
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    ),
    ApiKey.SASL_HANDSHAKE: (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ApiKey.SASL_AUTHENTICATE: (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED),
}
_TEXTS = re.compile(
    r"Authentication failed: Invalid username or password"
    rf"|(?:{'|'.join(MECHANISMS)}) failed: the credentials are not valid"
    r'|\{"status": "invalid_token"\}'
)
_CHALLENGE = re.compile(
    rb"(?:r=[\x21-\x2b\x2d-\x7e]+,s=[A-Za-z0-9+/]{22}==,i=4096"
    rb'|\{"status": "invalid_token"\})?'
)
_SUCCESS = re.compile(rb"(?:v=[A-Za-z0-9+/]+=*)?")
"""The last message of SCRAM; the other mechanisms have none."""


def forbidden(
    answer: bytes, asked: list[tuple[int, int]], *, raw: bool, is_logged_in: bool
) -> str | None:
    """Return why an answer, without its length, may not be given; None if it may.

    `asked` are the (api, version) of the requests with its correlation id. With `raw` it may be a
    token without a header. `is_logged_in` says that the peer is so after it.
    """
    if len(answer) > ANSWER_BYTES_MAX:
        return f"an answer of {len(answer)} bytes"
    if raw and (_CHALLENGE.fullmatch(answer) or (is_logged_in and _SUCCESS.fullmatch(answer))):
        return None
    reasons = [_forbidden(answer, key, version, is_logged_in) for key, version in asked]
    if not reasons:
        return "an answer to nothing that was asked"
    return None if None in reasons else reasons[0]


def _forbidden(answer: bytes, key: int, version: int, is_logged_in: bool) -> str | None:
    if key not in _ERRORS:
        return f"an answer to api {key}"
    if version not in SERVED[key]:
        version = 0
    try:
        message: dict[str, Any] = codec.decode_response(key, version, answer)[1]
    except codec.MalformedError as error:
        return f"an answer of api {key} that cannot be read: {error}"
    if message["error_code"] not in _ERRORS[ApiKey(key)]:
        return f"api {key} answers error {message['error_code']}"
    if key == ApiKey.SASL_HANDSHAKE and message["mechanisms"] != list(MECHANISMS):
        return f"mechanisms {message['mechanisms']}"
    if key == ApiKey.SASL_AUTHENTICATE:
        return _forbidden_token(message, is_logged_in)
    return None


def _forbidden_token(message: dict[str, Any], is_logged_in: bool) -> str | None:
    text, token = message["error_message"], bytes(message["auth_bytes"])
    if message["error_code"]:
        is_known = isinstance(text, str) and _TEXTS.fullmatch(text) is not None
        return None if is_known and not token else f"an error with {text!r} and {token!r}"
    may_be = _CHALLENGE.fullmatch(token) or (is_logged_in and _SUCCESS.fullmatch(token))
    return None if may_be and text is None else f"a challenge {token!r} with {text!r}"
