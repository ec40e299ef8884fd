"""Times of requests by API and stage, and the log of slow ones (rows N4, O2).

A request waits in its connection's queue, is worked at, waits for others such as replicas, waits
for answers before it, and is sent. Apache Kafka names the stages RequestQueueTime, LocalTime,
RemoteTime, ResponseQueueTime, ResponseSendTime; TotalTime is their sum. Source: KIP-188.

The line of a slow request says what it waited for the longest, as far as that is known: the
replicas, the controller, a quota, those before it. A storm of slow requests must not fill the disk:
beyond some lines a second they are counted only.

Series are bounded, though there are many APIs, versions and errors. What comes first has series of
its own, and keeps them: no total falls. Once the room is used up, what is new counts as `(other)`.
Room for producing and fetching is kept. An API that nobody has used for a while has no quantiles.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from broker.metrics._topics import OTHERS
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import ReplicaWait, WaitEnd
from raftctl.errors import ErrorCode
from raftctl.metrics import (
    QUANTILES,
    Distribution,
    Family,
    Meter,
    Sample,
    Summary,
    counter,
    gauge,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from structlog.typing import FilteringBoundLogger

    from broker.request_context import RequestContext
    from raftctl.metrics import Metrics

_Key = TypeVar("_Key", int, str)
_PREFIX = "kafka_network_requestmetrics"
REQUESTS = counter(
    f"{_PREFIX}_requests_total",
    "Requests that were answered, of each version.",
    "request",
    "version",
)
RATES = gauge(
    f"{_PREFIX}_requestspersec",
    "Requests a second, averaged over some minutes.",
    "request",
    "minutes",
)
ERRORS = counter(
    f"{_PREFIX}_errors_total",
    "Errors in responses, one for each partition or group that has it; NONE: responses without.",
    "request",
    "error",
)
BYTES = summary(f"{_PREFIX}_requestbytes", "Bytes of a request.", "request")
TIMES = {
    stage: summary(f"{_PREFIX}_{stage.lower()}ms", f"Milliseconds a request {what}.", "request")
    for stage, what in (
        ("RequestQueueTime", "waited for those before it"),
        ("LocalTime", "was worked at"),
        ("RemoteTime", "waited for others, such as replicas"),
        ("ResponseQueueTime", "had its answer wait for those before it"),
        ("ResponseSendTime", "had its answer wait for the connection"),
        ("TotalTime", "took in all"),
        ("ThrottleTime", "had its connection muted by a quota"),
    )
}

STAGE_QUANTILES = (0.5, 0.99)
"""Of what is a part of the whole time, and of sizes: with all six an API would be 70 series."""
_API_SERIES = 2 + 3 + 7 * (2 + len(STAGE_QUANTILES)) + 2 + len(QUANTILES)
"""Of an API: other versions and errors, rates, sizes and parts, and the whole time."""
_KEPT = frozenset({(ApiKey.PRODUCE, False), (ApiKey.FETCH, False), (ApiKey.FETCH, True)})
"""APIs that have series whenever they come: those that dashboards are about."""
_PART = 0.6
"""Of `metrics.series.max`, for requests: others have at least the rest."""
_OTHER_VERSION = -1
_WAITING = (ApiKey.FETCH, ApiKey.JOIN_GROUP)
"""Requests that wait on purpose, for records and for other members."""
SLOW_LINES_PER_SECOND_MAX = 10
_ERROR_NAMES = {code.value: code.name for code in ErrorCode}
_WHOLE = "TotalTime"
_US = 1_000_000
_MS_OF_US = 0.001


class _Api:
    """What is counted for one API."""

    __slots__ = ("bytes", "errors", "name", "requests", "times", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: Counter[str] = Counter()
        self.requests = Meter()
        self.versions: Counter[int] = Counter()
        self.bytes = Distribution()
        self.times = {stage: Distribution() for stage in TIMES}

    @property
    def measured(self) -> tuple[Meter | Distribution, ...]:
        """All that needs a tick."""
        return self.requests, self.bytes, *self.times.values()


class RequestTimes:
    """Counts each request when its answer has left; one that was slow has a line in the log."""

    def __init__(self, metrics: Metrics, log: FilteringBoundLogger, slow_ms: int) -> None:
        """A request that took longer than `slow_ms` is slow."""
        self._metrics = metrics
        self._log = log
        self._slow_s = slow_ms / 1000
        self._apis: dict[tuple[int, bool], _Api] = {}
        """By key, and whether followers ask."""
        self._rest = _Api(OTHERS)
        """APIs without series of their own."""
        kept = len(_KEPT) + 1
        self._room = int(_PART * metrics.series_max) - kept * _API_SERIES
        """For series of what has not come yet, but for those of `_KEPT` and of the rest."""
        self._second = -1
        """Of the clock, in which the newest slow request ended."""
        self._lines = 0
        """That slow requests have in this second."""
        self._left_out = 0
        """Slow requests without a line since the newest line."""
        metrics.add(self._collect)
        metrics.keep(self, *self._rest.measured)

    def tick(self) -> None:
        """Report the slow requests that had no line, if no later one has."""
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._log.warning("slow_requests_left_out", count=left_out)

    def sent(self, context: RequestContext) -> None:
        """Count a request whose answer has been handed to the connection.

        What has no header, such as a token of SASL, is not counted, nor is what the broker does not
        serve: a client may name any version.
        """
        if context.api_version not in SERVED.get(context.api_key, ()):
            return
        which = context.api_key, context.is_of_replica
        api = self._apis.get(which) or self._new_api(which)
        api.requests.count += 1
        if context.errors:
            for code, count in context.errors.items():
                api.errors[self._admitted(api.errors, _error_name(code), OTHERS)] += count
        else:
            api.errors[self._admitted(api.errors, ErrorCode.NONE.name, OTHERS)] += 1
        version = _OTHER_VERSION if api is self._rest else context.api_version
        api.versions[self._admitted(api.versions, version, _OTHER_VERSION)] += 1
        api.bytes.add(context.size)
        total = context.sent_at - context.arrived_at
        for stage, seconds in _stages(context, total):
            api.times[stage].add(int(seconds * _US))
        waited = context.answered_at - context.returned_at if context.api_key in _WAITING else 0.0
        if total - waited > self._slow_s:
            self._log_slow(context, total)

    def _new_api(self, which: tuple[int, bool]) -> _Api:
        if which not in _KEPT:
            if self._room < _API_SERIES:
                self._apis[which] = self._rest
                return self._rest
            self._room -= _API_SERIES
        api = self._apis[which] = _Api(_api_name(*which))
        self._metrics.keep(*api.measured)
        return api

    def _admitted(self, counts: Counter[_Key], key: _Key, other: _Key) -> _Key:
        """Return what a value is counted as: itself, if it has a series or there is room for it."""
        if key in counts or key == other:
            return key
        if self._room <= 0:
            return other
        self._room -= 1
        return key

    def _log_slow(self, context: RequestContext, total: float) -> None:
        second = int(context.sent_at)
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= SLOW_LINES_PER_SECOND_MAX:
            self._left_out += 1
            return
        self._lines += 1
        connection = context.connection
        left_out, self._left_out = self._left_out, 0
        self._log.warning(
            "slow_request",
            api=ApiKey(context.api_key).name,
            version=context.api_version,
            request_id=context.request_id,
            correlation_id=context.correlation_id,
            client_id=context.client_id,
            listener=connection.listener,
            host=connection.host,
            principal=str(connection.principal),
            size=context.size,
            why=why_slow(context),
            **{f"{stage}_ms": round(s * 1e3, 3) for stage, s in _stages(context, total)},
            **({"left_out": left_out} if left_out else {}),
        )

    def _collect(self) -> Iterator[Family]:
        named = list({api.name: api for _, api in sorted(self._apis.items())}.items())
        yield Family(
            REQUESTS,
            [
                Sample((name, OTHERS if version == _OTHER_VERSION else str(version)), count)
                for name, api in named
                for version, count in sorted(api.versions.items())
            ],
        )
        yield Family(
            RATES,
            [
                Sample((name, str(minutes)), rate)
                for name, api in named
                for minutes, rate in api.requests.rates.items()
            ],
        )
        yield Family(
            ERRORS,
            [
                Sample((name, error), count)
                for name, api in named
                for error, count in sorted(api.errors.items())
            ],
        )
        yield Family(
            BYTES,
            [Sample((name,), _summary(api.bytes, 1.0, STAGE_QUANTILES)) for name, api in named],
        )
        for stage, metric in TIMES.items():
            asked = QUANTILES if stage == _WHOLE else STAGE_QUANTILES
            yield Family(
                metric,
                [
                    Sample((name,), _summary(api.times[stage], _MS_OF_US, asked))
                    for name, api in named
                ],
            )


def _summary(measured: Distribution, scale: float, asked: Sequence[float]) -> Summary:
    """A summary that has quantiles only if there is something that they are of."""
    return measured.summary(scale, () if measured.is_empty else asked)


def _api_name(api_key: int, is_of_replica: bool) -> str:
    """The name in Apache Kafka's metrics: `ListOffsets`, `FetchConsumer`."""
    if api_key == ApiKey.FETCH:
        return "FetchFollower" if is_of_replica else "FetchConsumer"
    return "".join(word.title() for word in ApiKey(api_key).name.split("_"))


def _error_name(code: int) -> str:
    """The name in Kafka's registry."""
    return _ERROR_NAMES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR.name)


def _stages(context: RequestContext, total: float) -> tuple[tuple[str, float], ...]:
    """Seconds of each stage of a request whose answer has left."""
    returned = context.returned_at
    return (
        ("RequestQueueTime", context.started_at - context.arrived_at),
        ("LocalTime", returned - context.started_at),
        ("RemoteTime", context.answered_at - returned),
        ("ResponseQueueTime", context.queued_at - context.answered_at),
        ("ResponseSendTime", context.sent_at - context.queued_at),
        ("TotalTime", total),
        ("ThrottleTime", context.throttle_ms / 1000),
    )


def why_slow(context: RequestContext) -> str:
    """Return what a request whose answer has left has spent most of its time on, in a sentence."""
    stages = dict(_stages(context, 0.0)[:5])
    longest = max(stages, key=lambda stage: stages[stage])
    took = f"{stages[longest] * 1e3:.0f} ms"
    match longest:
        case "RequestQueueTime":
            return _why_queued(context, took)
        case "LocalTime":
            return f"the event loop worked at it for {took}"
        case "RemoteTime":
            return _why_awaited(context, took)
        case "ResponseQueueTime":
            return f"its answer waited {took} for those before it on the connection"
    return f"its answer waited {took} for the client to read"


def _why_queued(context: RequestContext, took: str) -> str:
    connection = context.connection
    if context.arrived_at < connection.unmuted_at:
        muted = f"{(connection.unmuted_at - context.arrived_at) * 1e3:.0f} ms"
        return f"waited {muted} while the quota {connection.muted_by} muted its connection"
    return f"waited {took} for the requests before it on the connection"


def _why_awaited(context: RequestContext, took: str) -> str:
    match context.waited_for:
        case None:
            return f"waited {took} for work that it had begun"
        case str() as known:
            return f"waited {known}"
        case ReplicaWait(topic, partition, brokers, end):
            names = " and ".join(f"broker {one}" for one in brokers)
            where = f"{topic}-{partition}"
            if end is WaitEnd.LEFT_ISR:
                return f"waited {took} for {names} to leave the ISR of {where}"
            in_vain = " in vain" if end is WaitEnd.TIMED_OUT else ""
            return f"waited {took}{in_vain} for {names} to have the records of {where}"
