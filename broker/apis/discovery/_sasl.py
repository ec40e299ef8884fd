"""SaslHandshake and SaslAuthenticate that are out of place.

On a listener that authenticates by SASL, those of a login never come here. What does is one on
another listener, of a client that is configured for SASL, or one of a client that has logged in.
The response says so, instead of losing the connection without a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire


def handle(
    context: ApiContext, request: Request[wire.SaslAuthenticateRequest | wire.SaslHandshakeRequest]
) -> wire.SaslAuthenticateResponse | wire.SaslHandshakeResponse:
    """KafkaError(ILLEGAL_SASL_STATE), whatever is asked."""
    connection = request.context.connection
    if connection.sasl is not None:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the connection has authenticated")
    protocol = connection.security_protocol
    text = f"listener {context.listener} is {protocol}: set security.protocol={protocol}"
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
