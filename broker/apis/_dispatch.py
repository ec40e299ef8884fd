"""From a frame to the bytes of its answer: which handler, which errors, which version.

The one place where exceptions become error codes. An api or version that is not served closes the
connection, as Apache Kafka does: the client cannot know how to read an answer. ApiVersions is the
exception (KIP-511).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker.apis import administration, consumer, data, discovery, transactional
from broker.apis._slices import SLICE_ITEMS, WHOLE_ITEMS_MAX, joined, may_be_handled, slices
from broker.apis.handler import Answer, Api, ApiContext, Encoded, HangUpError, Reply
from broker.protocol.codec import (
    Request,
    RequestHeader,
    decode_body,
    decode_header,
    encode_response,
    frame_response,
)
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from broker.protocol.codec import Frame, Message
    from raftctl.runtime.api import Piece


Response = list["Piece"] | None
"""A whole frame, in pieces; None if the client expects none."""

_FAMILIES = (discovery, data, consumer, transactional, administration)
APIS: dict[int, Api] = {key: api for family in _FAMILIES for key, api in family.APIS.items()}
"""Every api that this broker serves."""
invariant(len(APIS) == sum(len(family.APIS) for family in _FAMILIES), "an api is of one family")


_LARGE_BYTES = 64 * 1024
"""Of a request: to decode more may take the event loop some ten milliseconds."""
_TOO_MANY = f"the arrays of this request may have {WHOLE_ITEMS_MAX} elements together: ask in parts"


def dispatch(
    context: ApiContext, frame: Frame, client_host: str = ""
) -> Response | Reply[Response]:
    """Starts the request in this frame; what it does to a log is done on return.

    MalformedError and HangUpError mean that the connection must be closed. A request that takes
    long to decode is decoded by a worker, unless it is a Produce: there the records are long.
    """
    header, position = decode_header(frame)
    if header.version not in SERVED.get(header.api_key, ()):
        return _refuse_version(context, header)
    decode = partial(decode_body, frame, header, position, client_host)
    if len(frame) > _LARGE_BYTES and header.api_key != ApiKey.PRODUCE:
        return Reply.run(_answer_large(context, decode))
    request = decode()
    # An element takes a byte at least.
    if len(frame) > SLICE_ITEMS and (parts := slices(request)) is not None:
        return Reply.run(_answer_slices(context, request, parts))
    api = APIS[request.api_key]
    answer = _guard(context, request, lambda: api.handle(context, request))
    if isinstance(answer, Coroutine):
        answer = Reply.run(answer)
    if isinstance(answer, Reply):
        return answer.then(lambda result: _encode(request, _guard(context, request, result)))
    return _encode(request, answer)


async def _answer_large(context: ApiContext, decode: Callable[[], Request[Any]]) -> Response:
    """Decodes, takes apart and encodes on the worker; only what is between is done here.

    INVALID_REQUEST of what has too many elements to be handled in one turn, and cannot be taken
    apart.
    """
    request = await context.aside(decode)
    parts = await context.aside(partial(slices, request))
    if parts is not None:
        return await _answer_slices(context, request, parts)
    if not await context.aside(partial(may_be_handled, request)):
        refusal = KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY)
        refuse = partial(APIS[request.api_key].refuse, context, request, refusal)
        return await _encode_aside(context, request, await context.aside(refuse))
    return _encode(request, await _handled(context, request))


async def _answer_slices(
    context: ApiContext, request: Request[Any], parts: list[Request[Any]]
) -> Response:
    answers: list[Message] = []
    turns = Slices()
    for part in parts:
        answer = await _handled(context, part)
        invariant(isinstance(answer, Mapping), "the answer to a slice can be joined with others")
        answers.append(cast("Message", answer))
        await turns.rest()
    whole = await context.aside(partial(joined, request, answers))
    return await _encode_aside(context, request, whole)


async def _handled(context: ApiContext, request: Request[Any]) -> Answer:
    """The answer of the handler, however long it takes, or the refusal."""
    answer = _guard(context, request, lambda: APIS[request.api_key].handle(context, request))
    if isinstance(answer, Coroutine):
        answer = Reply.run(answer)
    if isinstance(answer, Reply):
        await answer.wait_until_done()
        answer = _guard(context, request, answer.result)
    return cast("Answer", answer)


async def _encode_aside(context: ApiContext, request: Request[Any], answer: Answer) -> Response:
    pieces: list[Piece] | None = await context.aside(partial(_encode, request, answer))
    return pieces


def _refuse_version(context: ApiContext, header: RequestHeader) -> Response:
    """ApiVersions is refused in version 0, which every client can read (KIP-511)."""
    if header.api_key != ApiKey.API_VERSIONS:
        raise HangUpError(f"api {header.api_key} version {header.version} is not supported")
    key = ApiKey.API_VERSIONS
    request: Request[Any] = Request(key, 0, header.correlation_id, header.client_id, {})
    refusal = KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return _encode(request, APIS[key].refuse(context, request, refusal))


def _guard(context: ApiContext, request: Request[Any], call: Callable[[], Any]) -> Any:
    """Turns what the call raises into the refusal of the request."""
    try:
        return call()
    except HangUpError:
        raise
    except KafkaError as error:
        return APIS[request.api_key].refuse(context, request, error)
    except Exception as error:
        context.log.exception("request_failed", api=ApiKey(request.api_key).name)
        failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
        return APIS[request.api_key].refuse(context, request, failure)


def _encode(request: Request[Any], answer: Answer) -> Response:
    key, version, correlation_id = request.api_key, request.version, request.correlation_id
    if answer is None:
        return None
    if isinstance(answer, Encoded):
        return frame_response(key, version, correlation_id, [answer.body])
    return encode_response(key, version, correlation_id, answer)
