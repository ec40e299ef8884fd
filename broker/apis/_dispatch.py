"""Dispatch of a frame to its handler, and of exceptions to error codes.

The one place where exceptions become error codes. An api or version that is not served closes the
connection, as Apache Kafka does: the client cannot know how to read an answer. ApiVersions is the
exception (KIP-511).

A request for very many things is taken apart into slices that are answered in turns. A slice is a
request like any other, so a handler does not know of it. What changes between two slices shows in
the later one, as it would to a client that asks twice. A request that names something twice stays
whole, since only then can the response say so.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from broker.apis import administration, consumer, data, discovery, transactional
from broker.apis.handler import (
    Answer,
    Api,
    ApiContext,
    Encoded,
    HangUpError,
    Reply,
    throttling,
)
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
    from collections.abc import Hashable, Iterator, Sequence

    from broker.protocol.codec import Frame, Message
    from broker.request_context import RequestContext
    from raftctl.runtime.api import Piece


Result = TypeVar("Result")

Response = list["Piece"] | None
"""A whole frame, in pieces; None if the client expects none."""

Serve = Callable[["Frame", "RequestContext"], "Reply[Response] | Response"]
"""From a frame and its context to the response; raises what `dispatch` raises."""

_FAMILIES = (discovery, data, consumer, transactional, administration)
APIS: dict[int, Api] = {key: api for family in _FAMILIES for key, api in family.APIS.items()}
"""Every api that this broker serves."""
invariant(len(APIS) == sum(len(family.APIS) for family in _FAMILIES), "an api is of one family")

SLICE_ITEMS = 500
"""Topics, partitions, groups or resources of one slice: some milliseconds of work."""
WHOLE_ITEMS_MAX = 50_000
"""Elements of all arrays of a request that is not taken apart: a decision of the controller for
10,000 partitions, the most that it takes, names as many replicas.
"""
_LARGE_BYTES = 64 * 1024
"""Of a request: to decode more may take the event loop some ten milliseconds."""
_TOO_MANY = f"the arrays of this request may have {WHOLE_ITEMS_MAX} elements together: ask in parts"


def dispatch(
    context: ApiContext, frame: Frame, request_context: RequestContext
) -> Response | Reply[Response]:
    """Start the request in this frame; its effects on a log are complete on return.

    Raises MalformedError and HangUpError, after which the connection must be closed. A worker
    decodes a large request, unless it is a Produce: there the records are long, not the fields.
    """
    header, position = decode_header(frame)
    request_context.identify(
        header.api_key, header.version, header.correlation_id, header.client_id
    )
    if header.version not in SERVED.get(header.api_key, ()):
        return _refuse_version(context, header)
    if context.tracer is not None:
        request_context.trace = context.tracer.sample()
    decode = partial(decode_body, frame, header, position, request_context)
    if len(frame) > _LARGE_BYTES and header.api_key != ApiKey.PRODUCE:
        return _run(context, request_context, _answer_large(context, decode))
    request = decode()
    # An element takes a byte at least.
    if len(frame) > SLICE_ITEMS and (parts := slices(request)) is not None:
        return _run(context, request_context, _answer_slices(context, request, parts))
    api = APIS[request.api_key]
    answer = _guard(context, request, lambda: api.handle(context, request))
    has_quotas = context.quotas.is_active
    if has_quotas:
        throttling.started(context, request)
    if isinstance(answer, Coroutine):
        answer = _run(context, request_context, answer)
    if isinstance(answer, Reply):
        return answer.then(lambda result: _encode(request, _result(context, request, result)))
    return _encode(request, throttling.finished(context, request, answer) if has_quotas else answer)


def _run(
    context: ApiContext, request_context: RequestContext, work: Coroutine[Any, Any, Result]
) -> Reply[Result]:
    """Start the task of a request; where there are quotas, its steps are measured."""
    if context.quotas.is_active:
        work = throttling.Metered(work, request_context)
    return Reply.run(work)


def _result(context: ApiContext, request: Request[Any], result: Callable[[], Any]) -> Answer:
    """The answer of a reply that is done, or the refusal, and what it costs."""
    if not context.quotas.is_active:
        return cast("Answer", _guard(context, request, result))
    answer = throttling.metered(request.context, lambda: _guard(context, request, result))
    return throttling.finished(context, request, answer)


def _finished(context: ApiContext, request: Request[Any], answer: Answer) -> Answer:
    """The answer with its throttle time, where there are quotas."""
    return throttling.finished(context, request, answer) if context.quotas.is_active else answer


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
        refused = await context.aside(refuse)
        return await _encode_aside(context, request, _finished(context, request, refused))
    return _encode(request, _finished(context, request, await _handled(context, request)))


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
    return await _encode_aside(context, request, _finished(context, request, whole))


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
        context.log.debug("request_refused", **_named(request), error=str(error))
        return APIS[request.api_key].refuse(context, request, error)
    except Exception as error:
        context.log.exception("request_failed", **_named(request))
        failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
        return APIS[request.api_key].refuse(context, request, failure)


def _named(request: Request[Any]) -> dict[str, str]:
    """What a line of the log names a request by, also where another request made it ready."""
    return {"api": ApiKey(request.api_key).name, "request_id": request.context.request_id}


def _encode(request: Request[Any], answer: Answer) -> Response:
    key, version, correlation_id = request.api_key, request.version, request.correlation_id
    if answer is None:
        return None
    if isinstance(answer, Encoded):
        return frame_response(key, version, correlation_id, [answer.body])
    request.context.errors = errors_of(answer)
    return encode_response(key, version, correlation_id, answer)


def errors_of(answer: Mapping[str, Any]) -> dict[int, int]:
    """Count the error codes of a response, those of its parts too, but for NONE."""
    found: dict[int, int] = {}
    parts: list[Mapping[str, Any]] = [answer]
    while parts:
        for name, value in parts.pop().items():
            if name == "error_code":
                if value:
                    found[value] = found.get(value, 0) + 1
            elif type(value) is list and value and type(value[0]) is dict:
                parts += value
            elif type(value) is dict:
                parts.append(value)
    return found


# --- slices ---------------------------------------------------------------------------------------


class _Arrays(NamedTuple):
    """Which array of a request is cut, and to which of the answer it leads."""

    asked: str
    answered: str
    inner_asked: str | None = None
    """In each element of `asked`, an array that is cut as well."""
    inner_answered: str | None = None


_SLICED = {
    ApiKey.LIST_OFFSETS: _Arrays("topics", "topics", "partitions", "partitions"),
    ApiKey.METADATA: _Arrays("topics", "topics"),
    ApiKey.FIND_COORDINATOR: _Arrays("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: _Arrays("groups", "groups"),
    ApiKey.DELETE_GROUPS: _Arrays("groups_names", "results"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Arrays("group_ids", "groups"),
    ApiKey.DELETE_RECORDS: _Arrays("topics", "topics", "partitions", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Arrays("topics", "topics", "partitions", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: _Arrays("resources", "results"),
    ApiKey.DESCRIBE_PRODUCERS: _Arrays("topics", "topics", "partition_indexes", "partitions"),
    ApiKey.DESCRIBE_TRANSACTIONS: _Arrays("transactional_ids", "transaction_states"),
}
_IDENTITY = ("name", "topic", "topic_id", "resource_type", "resource_name")
_INNER_IDENTITY = ("partition_index", "partition")
_UNBOUNDED = (ApiKey.FETCH,)
"""A follower names all partitions that it has of a leader."""


def elements(body: Any) -> int:
    """Return the number of elements in all arrays of a message."""
    if isinstance(body, dict):
        return sum(elements(value) for value in body.values() if isinstance(value, dict | list))
    if not body or not isinstance(body[0], dict | list):
        return len(body)
    return len(body) + sum(map(elements, body))


def may_be_handled(request: Request[Any]) -> bool:
    """Return True if a request that is not taken apart is small enough for one turn."""
    return request.api_key in _UNBOUNDED or elements(request.body) <= WHOLE_ITEMS_MAX


def slices(request: Request[Any]) -> list[Request[Any]] | None:
    """Return the requests to handle in place of this one, in order; None if it stays whole."""
    arrays = _SLICED.get(ApiKey(request.api_key))
    items = None if arrays is None else request.body.get(arrays.asked)
    if arrays is None or not items or _names_twice(items, arrays):
        return None
    cut = list(_cut(items, arrays))
    if len(cut) < 2:
        return None
    more: dict[str, Any] = {arrays.asked: ()}
    if request.api_key == ApiKey.METADATA:
        # The controller would refuse so many at once, so they are not created in parts either.
        more["allow_auto_topic_creation"] = False
    return [replace(request, body={**request.body, **more, arrays.asked: one}) for one in cut]


def joined(request: Request[Any], answers: Sequence[Message]) -> Message:
    """Join the answers to the slices, in their order, into one."""
    arrays = _SLICED[ApiKey(request.api_key)]
    found: list[dict[str, Any]] = []
    for answer in answers:
        for one in answer[arrays.answered]:
            inner = arrays.inner_answered
            if inner is not None and found and _identity(found[-1]) == _identity(one):
                found[-1] = {**found[-1], inner: [*found[-1][inner], *one[inner]]}
            else:
                found.append(one)
    return {**answers[-1], arrays.answered: found}


def _cut(items: Sequence[Any], arrays: _Arrays) -> Iterator[list[Any]]:
    """Slices of at most `SLICE_ITEMS`, the elements of inner arrays counted.

    Without inner arrays they are as long as each other: Metadata for a few topics comes out of a
    cache as bytes, which cannot be joined.
    """
    if arrays.inner_asked is None:
        count = -(-len(items) // SLICE_ITEMS)
        for number in range(count):
            yield [*items[len(items) * number // count : len(items) * (number + 1) // count]]
        return
    piece: list[Any] = []
    room = SLICE_ITEMS
    for item in items:
        for part in _parts(item, arrays.inner_asked):
            size = 1 + len(part[arrays.inner_asked] or ())
            if piece and size > room:
                yield piece
                piece, room = [], SLICE_ITEMS
            piece.append(part)
            room -= size
    yield piece


def _parts(item: dict[str, Any], inner: str) -> Iterator[dict[str, Any]]:
    values = item[inner] or ()
    if len(values) <= SLICE_ITEMS:
        yield item
        return
    for start in range(0, len(values), SLICE_ITEMS):
        yield {**item, inner: values[start : start + SLICE_ITEMS]}


def _names_twice(items: Sequence[Any], arrays: _Arrays) -> bool:
    if len({_identity(item) for item in items}) < len(items):
        return True
    inner = arrays.inner_asked
    if inner is None:
        return False
    inside = (item[inner] or () for item in items)
    return any(len(set(map(_inner_identity, values))) < len(values) for values in inside)


def _identity(item: Any) -> Hashable:
    if isinstance(item, str):
        return item
    return tuple(item.get(name) for name in _IDENTITY)


def _inner_identity(value: Any) -> Hashable:
    if isinstance(value, int):
        return value
    return tuple(value.get(name) for name in _INNER_IDENTITY)
