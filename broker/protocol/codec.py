"""Frames to requests and messages to frames: headers, correlation ids, versions.

A frame is a 4-byte length and as many bytes: header, then body. The header of a request is version
1, or 2 (with tagged fields) before a flexible body; its client id is never compact. The header of a
response has tagged fields before a flexible body, except that of ApiVersions, which an older client
must be able to read whatever version it asked for (KIP-511).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from broker.protocol._decoder import Fields, Frame, MalformedError, decoder, skip_tagged
from broker.protocol._encoder import Message, encoder, joined
from broker.protocol._schema import load
from broker.protocol.versions import SERVED
from broker.request_context import RequestContext

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.runtime.api import Piece

__all__ = [
    "Frame",
    "MalformedError",
    "Message",
    "Request",
    "RequestHeader",
    "compile_newest",
    "decode_body",
    "decode_header",
    "decode_response",
    "decode_response_body",
    "encode_request",
    "encode_response",
    "encode_response_body",
    "frame_response",
]

_REQUEST_HEADER = struct.Struct(">hhih")
_RESPONSE_HEADER = struct.Struct(">ii")
_RESPONSE_HEADER_TAGGED = struct.Struct(">iix")

Body = TypeVar("Body", covariant=True)
"""The TypedDict of a request, from `broker.protocol.messages`."""


class RequestHeader(NamedTuple):
    """Header of every request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


@dataclass(slots=True)
class Request(Generic[Body]):
    """A decoded request; records in its body are views of the frame it came in."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Body
    context: RequestContext = field(default_factory=RequestContext)


def compile_newest(api_keys: Iterable[int]) -> None:
    """Prepare to answer the newest version of these requests.

    Each takes some 20 ms, the import of its tables above all, for which the first client would wait
    and everybody else with it.
    """
    for api_key in api_keys:
        newest = SERVED[api_key].stop - 1
        decoder(api_key, newest, "request")
        encoder(api_key, newest, "response")


def decode_header(frame: Frame) -> tuple[RequestHeader, int]:
    """Return the header without its tagged fields, and the position after it; raises
    MalformedError.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        end = _REQUEST_HEADER.size + max(length, 0)
        if end > len(frame):
            raise MalformedError("the client id reaches past the end")
        client_id = None if length < 0 else frame[_REQUEST_HEADER.size : end].decode()
    except (struct.error, ValueError) as error:
        raise MalformedError(f"bad request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), end


def decode_body(
    frame: Frame, header: RequestHeader, position: int, context: RequestContext
) -> Request[Any]:
    """Return the rest of a frame after `decode_header`.

    Raises MalformedError on bad bytes and KeyError on an api or version without a table.
    """
    api_key, version = header.api_key, header.version
    try:
        if load(api_key, version, "request").flexible_header:
            position = skip_tagged(frame, position)
        body = decoder(api_key, version, "request")(frame, position)[0]
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedError(f"bad request of api {api_key} version {version}: {error}") from error
    return Request(api_key, version, header.correlation_id, header.client_id, body, context)


def encode_response(
    api_key: int, version: int, correlation_id: int, message: Message
) -> list[Piece]:
    """Return a whole frame, its length included. Records stay the pieces they are."""
    pieces: list[Piece] = []
    encoder(api_key, version, "response")(message, pieces)
    return frame_response(api_key, version, correlation_id, pieces)


def encode_response_body(api_key: int, version: int, message: Message) -> bytes:
    """Return the body alone, to be kept and sent many times by `frame_response`."""
    return joined(partial(encoder(api_key, version, "response"), message))


def frame_response(
    api_key: int, version: int, correlation_id: int, body: list[Piece]
) -> list[Piece]:
    """Put length and header before an encoded body."""
    tagged = load(api_key, version, "response").flexible_header
    header = _RESPONSE_HEADER_TAGGED if tagged else _RESPONSE_HEADER
    length = header.size - 4 + sum(map(len, body))
    return [header.pack(length, correlation_id), *body]


def decode_response_body(api_key: int, version: int, body: Frame) -> Fields:
    """Return the message that `encode_response_body` made the body of."""
    message: Fields = decoder(api_key, version, "response")(body, 0)[0]
    return message


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str, message: Message
) -> bytes:
    """Return a whole frame, its length included, as a client sends it."""
    name = client_id.encode()
    header = _REQUEST_HEADER.pack(api_key, version, correlation_id, len(name)) + name
    if load(api_key, version, "request").flexible_header:
        header += b"\0"
    body = joined(partial(encoder(api_key, version, "request"), message))
    return b"".join([(len(header) + len(body)).to_bytes(4, "big"), header, body])


def decode_response(api_key: int, version: int, payload: Frame) -> tuple[int, Fields]:
    """(correlation id, message) from a frame without its length; raises MalformedError.

    Records in the message are views of `payload`.
    """
    try:
        correlation_id = int.from_bytes(payload[:4], "big", signed=True)
        position = 4
        if load(api_key, version, "response").flexible_header:
            position = skip_tagged(payload, position)
        message: Fields = decoder(api_key, version, "response")(payload, position)[0]
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedError(f"bad response of api {api_key} version {version}: {error}") from error
    return correlation_id, message
