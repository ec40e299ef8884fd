"""The line that a controller's log has of each request that a broker forwards for a client.

It names the request as the broker's log does, so that one can be followed over both, and says who
has changed what: Apache Kafka's controller logs the results of such requests too. A request that
only asks has a line of level debug.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests import ForwardedRequest
from raftctl.metadata.requests.admin import DescribeQuorumRequest
from raftctl.tracing import Named, SpanKind, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from structlog.typing import FilteringBoundLogger

    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.tracing import Tracer

    Reply = Callable[[ControllerResponse | KafkaError], None]
    Answer = Callable[[Any, Reply, int], None]

_FORWARDED = frozenset(get_args(ForwardedRequest))
_NAMES_MAX = 10
"""Of topics and the like in a line."""


def is_forwarded(request: ControllerRequest) -> TypeGuard[ForwardedRequest]:
    """Return whether the request is one that brokers forward for clients."""
    return type(request) in _FORWARDED


class ForwardedLog:
    """Has forwarded requests answered, and writes what came of each."""

    def __init__(
        self, log: FilteringBoundLogger, time: Callable[[], float], tracer: Tracer | None = None
    ) -> None:
        """`time` is the event loop's, in seconds."""
        self._log = log
        self._time = time
        self._tracer = tracer

    def answer(self, request: ForwardedRequest, reply: Reply, peer_id: int, answer: Answer) -> None:
        """Call `answer` with the request and what logs the outcome before it replies.

        Raises what `answer` raises.
        """
        origin, began = request.origin, self._time()
        request_id = "" if origin is None else origin.request_id

        decided: float | None = None

        def logged(outcome: ControllerResponse | KafkaError) -> None:
            self._write(request, request_id, peer_id, outcome, self._time() - began)
            self._record(request, began, decided)
            reply(outcome)

        follow(Named(request_id))
        try:
            answer(request, logged, peer_id)
            decided = self._time()
        except KafkaError as error:
            self._write(request, request_id, peer_id, error, self._time() - began)
            raise
        finally:
            follow(None)

    def _record(self, request: ForwardedRequest, began: float, decided: float | None) -> None:
        """Record the span of a request whose broker records its own.

        One that was answered later than it was `decided` on has waited for its commit.
        """
        origin, tracer = request.origin, self._tracer
        if tracer is None or origin is None or not origin.traceparent:
            return
        try:
            followed = tracer.follow(origin.traceparent)
        except ValueError:
            return  # of another release, perhaps: the request is answered all the same
        if followed is None:
            return
        parent, span = followed
        ended = self._time()
        if decided is not None:
            tracer.record_child("decide", span, began, decided)
            tracer.record_child("quorum commit", span, decided, ended)
        about = {"raftctl.request_id": origin.request_id}
        name = type(request).__name__
        tracer.record(name, span, parent, began, ended, about, SpanKind.SERVER)

    def _write(
        self,
        request: ForwardedRequest,
        request_id: str,
        peer_id: int,
        outcome: ControllerResponse | KafkaError,
        seconds: float,
    ) -> None:
        principal, host = request.requester or ("", "")
        is_question = isinstance(request, DescribeQuorumRequest)
        self._log.log(
            logging.DEBUG if is_question else logging.INFO,
            "forwarded_request",
            request=type(request).__name__,
            request_id=request_id,
            broker_id=peer_id,
            principal=principal,
            host=host,
            names=_names(request),
            errors=sorted({error.name for error in _errors(outcome) if error}),
            took_ms=round(seconds * 1e3, 3),
        )


def _names(request: ForwardedRequest) -> list[str]:
    """What the request is about, as far as it has names; the first of many."""
    items = getattr(request, "topics", None) or getattr(request, "resources", None) or ()
    return [_name(one) for one in items[:_NAMES_MAX]]


def _name(one: Any) -> str:
    if isinstance(one, tuple):
        return str(one[0] or one[1])
    return str(one.resource_name if hasattr(one, "resource_name") else one.name)


def _errors(outcome: ControllerResponse | KafkaError) -> Iterator[ErrorCode]:
    if isinstance(outcome, KafkaError):
        yield outcome.code
        return
    yield getattr(outcome, "error", ErrorCode.NONE)
    for one in getattr(outcome, "outcomes", ()) or getattr(outcome, "topics", ()):
        yield one.error
