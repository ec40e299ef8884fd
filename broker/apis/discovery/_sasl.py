"""SaslHandshake and SaslAuthenticate, on listeners that know no SASL.

A client that is configured for SASL asks for them first on any listener. The response says that
there is nothing to authenticate with, instead of losing its connection without a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire


def handle(
    context: ApiContext, _request: Request[wire.SaslAuthenticateRequest | wire.SaslHandshakeRequest]
) -> wire.SaslAuthenticateResponse | wire.SaslHandshakeResponse:
    """KafkaError(ILLEGAL_SASL_STATE), whatever is asked."""
    text = f"listener {context.listener} is PLAINTEXT: set security.protocol=PLAINTEXT"
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
