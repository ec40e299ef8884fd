"""The side that opens envelopes, and answers what is in them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.apis.handler import HangUpError, Reply
from broker.envelopes._envelope import (
    CARRIED,
    REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    VERSION,
    requester_in,
)
from broker.protocol.codec import MalformedError, decode_body, decode_header, encode_response
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import ClientConnection, RequestContext
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, DENIED, Operation, ResourceType
from raftctl.security import Action
from raftctl.tracing import follow, is_request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from broker.apis import Response, Serve
    from broker.protocol.codec import Frame
    from raftctl.runtime.api import Piece
    from raftctl.security import Authorizer, Requester

RECORDS_BYTES_MAX = 2 << 20
"""Of a partition in a Fetch: so much of a batch is sent, however large it is."""
_KEY = ApiKey.ENVELOPE.to_bytes(2, "big")
_MAY_SEND = Action(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


class LocalBroker(NamedTuple):
    """A broker in this process, as requesters of other connections meet it."""

    serve: Serve
    """Of the listener of the brokers, without the logins before it."""
    listener: str
    security_protocol: str
    aside: Callable[[Callable[[], Any]], asyncio.Future[Any]]
    """Does on a worker what would keep the event loop too long."""

    async def answer(self, request: bytes, requester: Requester, request_id: str) -> bytes:
        """Return the response to a request of `CARRIED`, both without lengths.

        `requester` has a host as rules name it; `request_id` is the one that logs of all nodes name
        the request by, empty if it has none. Raises KafkaError: INVALID_REQUEST for what may not
        be carried or is malformed, UNSUPPORTED_VERSION, MESSAGE_TOO_LARGE.
        """
        if len(request) > REQUEST_BYTES_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        try:
            header, _ = decode_header(request)
            if header.api_key not in CARRIED:
                why = f"api {header.api_key} is not answered in an envelope"
                raise KafkaError(ErrorCode.INVALID_REQUEST, why)
            if header.version not in SERVED[header.api_key]:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            response = await self._served(request, requester, request_id)
        except (MalformedError, HangUpError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if response is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "it is answered by nothing")
        if (size := sum(map(len, response))) > RESPONSE_BYTES_MAX:
            why = f"the answer has {size} bytes, of {RESPONSE_BYTES_MAX} at most"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
        joined: bytes = await self.aside(partial(_joined, response))
        return joined[4:]

    async def _served(self, request: bytes, requester: Requester, request_id: str) -> Response:
        now = asyncio.get_running_loop().time()
        client = ClientConnection(
            self.listener,
            self.security_protocol,
            requester.host,
            principal=requester.principal,
        )
        context = RequestContext(
            client,
            len(request),
            now,
            now,
            records_bytes_max=RECORDS_BYTES_MAX,
            carried_id=request_id,
        )
        follow(context)
        response = self.serve(request, context)
        if not isinstance(response, Reply):
            return response
        try:
            return await response.wait()
        except asyncio.CancelledError:
            response.cancel()
            raise


def _joined(response: Iterable[Piece]) -> bytes:
    return b"".join(
        one if isinstance(one, bytes | bytearray | memoryview) else one.read(0, len(one))
        for one in response
    )


class Envelopes:
    """Serves the frames of the brokers' listener; only it opens envelopes."""

    def __init__(self, local: LocalBroker, authorizer: Authorizer | None) -> None:
        """`local` answers what is in envelopes; its `serve` all other frames."""
        self._local = local
        self._authorizer = authorizer

    def serve(self, frame: Frame, context: RequestContext) -> Reply[Response] | Response:
        """Answer a frame. Raises MalformedError and HangUpError, which end the connection."""
        if not frame.startswith(_KEY):
            return self._local.serve(frame, context)
        header, position = decode_header(frame)
        context.identify(header.api_key, header.version, header.correlation_id, header.client_id)
        if header.version != VERSION:
            raise HangUpError(f"api {header.api_key} version {header.version} is not supported")
        body = decode_body(frame, header, position, context).body
        # The sender names the request by the client id; who is no node of the cluster is refused.
        named = header.client_id or ""
        request_id = named if is_request_id(named) else context.request_id
        sender = context.connection.requester
        return Reply.run(self._answer(header.correlation_id, body, sender, request_id))

    async def _answer(
        self, correlation_id: int, body: Any, sender: Requester, request_id: str
    ) -> Response:
        answer: dict[str, object]
        try:
            data = await self._open(body, sender, request_id)
            answer = {"error_code": ErrorCode.NONE, "response_data": data}
        except KafkaError as error:
            answer = {"error_code": error.code, "response_data": None}
        return encode_response(ApiKey.ENVELOPE, VERSION, correlation_id, answer)

    async def _open(self, body: Any, sender: Requester, request_id: str) -> bytes:
        if self._authorizer is not None and not self._authorizer.authorize(sender, _MAY_SEND):
            raise KafkaError(DENIED[ResourceType.CLUSTER])
        requester = requester_in(body["request_principal"], body["client_host_address"])
        return await self._local.answer(bytes(body["request_data"]), requester, request_id)
