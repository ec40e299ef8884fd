"""Requests of HTTP with fields in a query or in JSON, and their errors as JSON.

Whatever is wrong with a request is answered by an object with `error`, Kafka's name of it,
`message` and, for bad input, the `field`. `done` says if a write may have been done all the same.
"""

from __future__ import annotations

import base64
import binascii
import json
from math import isfinite
from typing import TYPE_CHECKING, Any

from aiohttp import web

from raftctl.errors import ErrorCode, KafkaError
from raftctl.ids import parse_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

BODY_BYTES_MAX = 4 * 1024 * 1024
"""Of a request; a value of the largest size fits in base64, and as text unless most is escaped."""

_HTTP_STATUS = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_CONFIG: 400,
    ErrorCode.INVALID_GROUP_ID: 400,
    ErrorCode.INVALID_PARTITIONS: 400,
    ErrorCode.INVALID_REPLICATION_FACTOR: 400,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 400,
    ErrorCode.INVALID_SESSION_TIMEOUT: 400,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.SECURITY_DISABLED: 403,
    ErrorCode.BROKER_ID_NOT_REGISTERED: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_MEMBER_ID: 404,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.ELECTION_NOT_NEEDED: 409,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.INVALID_TXN_STATE: 409,
    ErrorCode.INVALID_UPDATE_VERSION: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: 409,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: 409,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.FENCED_MEMBER_EPOCH: 409,
    ErrorCode.OFFSET_OUT_OF_RANGE: 410,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.POLICY_VIOLATION: 422,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.UNSUPPORTED_VERSION: 501,
    ErrorCode.NOT_CONTROLLER: 503,
    ErrorCode.BROKER_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.LEADER_NOT_AVAILABLE: 503,
    ErrorCode.NOT_COORDINATOR: 503,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: 503,
    ErrorCode.NETWORK_EXCEPTION: 504,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}


class BadFieldError(Exception):
    """Error in one field of a request, with the remedy."""

    def __init__(self, field: str, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field}: {remedy}")


def error_response(error: KafkaError | BadFieldError, **more: Any) -> web.Response:
    """Return the answer for an error."""
    if isinstance(error, BadFieldError):
        document = {"error": "INVALID_REQUEST", "message": str(error), "field": error.field}
        return web.json_response({**document, **more}, status=400)
    document = {"error": error.code.name, "message": error.message}
    if error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION):
        document["done"] = "unknown"
    return web.json_response({**document, **more}, status=_HTTP_STATUS.get(error.code, 500))


class Fields:
    """The fields of a request, each to be taken once; what is left over is an error."""

    def __init__(self, fields: Mapping[str, Any], path: str = "") -> None:
        """`path` leads to these fields, where they are within another: `partitions[2].`."""
        self._fields = dict(fields)
        self._path = path

    def _bad(self, name: str, remedy: str) -> BadFieldError:
        return BadFieldError(self._path + name, remedy)

    @classmethod
    async def of(cls, request: web.Request) -> Fields:
        """From the query of a GET, or from the JSON body. Raises BadFieldError, KafkaError."""
        if request.method == "GET":
            for name in request.query:
                if len(request.query.getall(name)) > 1:
                    raise BadFieldError(name, "give it once")
            return cls(request.query)
        if request.content_type != "application/json":
            raise BadFieldError("Content-Type", "must be application/json")
        try:
            body = json.loads(await request.text())
        except web.HTTPRequestEntityTooLarge:
            why = f"body has at most {BODY_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why) from None
        except (ValueError, RecursionError):
            raise BadFieldError("body", "must be one JSON object in UTF-8") from None
        if not isinstance(body, dict):
            raise BadFieldError("body", "must be one JSON object")
        return cls(body)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; required without a default."""
        value = self.text_or_none(name)
        if value is not None:
            return value
        if default is None:
            raise self._bad(name, "is missing")
        return default

    def text_or_none(self, name: str) -> str | None:
        """Return a text, if it is there."""
        value = self._fields.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise self._bad(name, "must be a string")
        if value is not None:
            _check_utf8(self._path + name, value)
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return an integer within bounds; texts of digits count, as a query has them."""
        value = self._fields.pop(name, None)
        if value is None:
            return default
        if isinstance(value, str) and value.lstrip("-").isascii() and _is_integer(value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise self._bad(name, f"must be an integer from {low} to {high}")
        return value

    def integer_or_none(self, name: str, low: int, high: int) -> int | None:
        """Return an integer within bounds, if it is there."""
        if self._fields.get(name) is None:
            self._fields.pop(name, None)
            return None
        return self.number(name, low, low, high)

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer within bounds, which must be there."""
        found = self.integer_or_none(name, low, high)
        if found is None:
            raise self._bad(name, "is missing")
        return found

    def decimal_or_none(self, name: str) -> float | None:
        """Return a number, if it is there."""
        value = self._fields.pop(name, None)
        if value is None:
            return None
        if type(value) not in (int, float) or not isfinite(value):
            raise self._bad(name, "must be a number")
        return float(value)

    def integers_or_none(self, name: str, high: int, count_max: int) -> list[int] | None:
        """Return a list of different integers from 0 on, if it is there."""
        values = self._list_or_none(name, count_max)
        if values is None:
            return None
        if any(type(one) is not int or not 0 <= one <= high for one in values):
            raise self._bad(name, f"must have integers from 0 to {high} only")
        if len(set(values)) < len(values):
            raise self._bad(name, "names one twice")
        return values

    def texts(self, name: str, count_max: int) -> list[str]:
        """Return a list of texts; empty if it is not there."""
        values = self._list_or_none(name, count_max) or []
        for one in values:
            if not isinstance(one, str):
                raise self._bad(name, "must have strings only")
            _check_utf8(self._path + name, one)
        return values

    def pairs(self, name: str, count_max: int) -> dict[str, str]:
        """Return an object whose values are texts; empty if it is not there."""
        value = self._fields.pop(name, None) or {}
        if not isinstance(value, dict) or len(value) > count_max:
            raise self._bad(name, f"must be an object of at most {count_max} fields")
        inner = Fields(value, f"{self._path}{name}.")
        return {key: inner.text(key) for key in value}

    def objects_or_none(self, name: str, count_max: int) -> list[Fields] | None:
        """Return a list of objects, if it is there."""
        values = self._list_or_none(name, count_max)
        if values is None:
            return None
        if not all(isinstance(one, dict) for one in values):
            raise self._bad(name, "must have objects only")
        return [Fields(one, f"{self._path}{name}[{n}].") for n, one in enumerate(values)]

    def _list_or_none(self, name: str, count_max: int) -> list[Any] | None:
        values = self._fields.pop(name, None)
        if values is None:
            return None
        if not isinstance(values, list) or not 0 < len(values) <= count_max:
            raise self._bad(name, f"must be a list of 1 to {count_max}")
        return values

    def flag(self, name: str) -> bool:
        """Return a boolean, false if it is not there."""
        value = self._fields.pop(name, False)
        if not isinstance(value, bool):
            raise self._bad(name, "must be true or false")
        return value

    def bytes_or_none(self, name: str) -> bytes | None:
        """Return a value: text, or bytes in base64 under the name with `_base64`."""
        text = self.text_or_none(name)
        encoded = self.text_or_none(f"{name}_base64")
        if text is not None and encoded is not None:
            raise self._bad(name, f"give it or {name}_base64")
        if text is not None:
            return text.encode()
        if encoded is None:
            return None
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise self._bad(f"{name}_base64", "is not base64") from None

    def id_or_none(self, name: str) -> UUID | None:
        """Return the id of a session, if it is there."""
        text = self.text_or_none(name)
        if text is None:
            return None
        try:
            return parse_uuid(text)
        except ValueError:
            raise self._bad(name, "is no session's id: 22 characters") from None

    def id(self, name: str) -> UUID:
        """Return the id of a session."""
        found = self.id_or_none(name)
        if found is None:
            raise self._bad(name, "is missing")
        return found

    def end(self) -> None:
        """Raise BadFieldError if anything is left over."""
        for name in self._fields:
            raise self._bad(name, "is not known here")


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdigit() and len(digits) < 20


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadFieldError(name, "is no UTF-8: it has half of a surrogate pair") from None
