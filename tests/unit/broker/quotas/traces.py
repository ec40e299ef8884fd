"""What throttle times a trace of one client's requests must have, from its own times and sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.quotas._rates import SampledRate, TokenBucket, Windows

CLOCK_MS = 60
"""Between the measuring of a broker on a busy machine and its client's seeing of it."""
STEP_MS = 10
FIRST_LATE_MS = 200
"""The same of the first answer, which also waits for what a broker does only once."""


@dataclass(slots=True)
class Trace:
    """Answers in their order, each (milliseconds since the first, size, throttle time).

    The size is that of the request, or of the answer to a Fetch; 0 if nothing was granted.
    """

    bound: float
    answers: list[tuple[int, int, int]] = field(default_factory=list)


def replayed(name: str, trace: Trace) -> list[int]:
    """The throttle times by Apache Kafka's definition at these times."""
    return {"produce": _produces, "fetch": _fetches, "mutations": _changes}[name](trace)


def mismatches(name: str, trace: Trace) -> list[tuple[int, int, int, int]]:
    """Each answer whose throttle time is more than 10 % from the definition's, with that one.

    Times are since the first answer, but samples begin when the first request is measured. By how
    much that was earlier is not known, and the throttle time jumps at each whole second since. So
    one lateness of the first answer must explain all.
    """
    first, *rest = trace.answers
    candidates = []
    for late_ms in range(0, FIRST_LATE_MS + 1, STEP_MS):
        moved = [first, *((at_ms + late_ms, size, found) for at_ms, size, found in rest)]
        candidates.append(_mismatches(name, Trace(trace.bound, moved)))
    return min(candidates, key=len)


def _mismatches(name: str, trace: Trace) -> list[tuple[int, int, int, int]]:
    return [
        (*answer, expected)
        for index, (answer, expected) in enumerate(
            zip(trace.answers, replayed(name, trace), strict=True)
        )
        if not (_agree(answer[2], expected) or _agrees_earlier(name, trace, index))
    ]


def _agree(found: int, expected: int) -> bool:
    return abs(found - expected) <= 0.1 * max(found, expected) + CLOCK_MS


def _agrees_earlier(name: str, trace: Trace, index: int) -> bool:
    """Whether the broker may have measured this one before a jump, and its client seen it after."""
    at_ms, size, found = trace.answers[index]
    earliest_ms = max([at_ms - CLOCK_MS, *(before[0] for before in trace.answers[:index][-1:])])
    for moved_ms in range(earliest_ms, at_ms, STEP_MS):
        answers = [*trace.answers]
        answers[index] = moved_ms, size, found
        if _agree(found, replayed(name, Trace(trace.bound, answers))[index]):
            return True
    return False


def _produces(trace: Trace) -> list[int]:
    rate, found = SampledRate(Windows()), []
    for at_ms, size, _ in trace.answers:
        rate.record(size, at_ms)
        found.append(rate.throttle_ms(trace.bound, at_ms))
    return found


def _fetches(trace: Trace) -> list[int]:
    """An answer without records withheld those that the next one with records has."""
    sizes = [size for _, size, _ in trace.answers]
    for index in reversed(range(len(sizes) - 1)):
        sizes[index] = sizes[index] or sizes[index + 1]
    rate, found = SampledRate(Windows()), []
    for (at_ms, granted, _), size in zip(trace.answers, sizes, strict=True):
        rate.record(size, at_ms)
        found.append(rate.throttle_ms(trace.bound, at_ms))
        rate.record(granted - size, at_ms)
    return found


def _changes(trace: Trace) -> list[int]:
    bucket, found = TokenBucket(Windows()), []
    for at_ms, partitions, _ in trace.answers:
        found.append(bucket.throttle_ms(trace.bound, at_ms))
        bucket.take(partitions, trace.bound, at_ms)
    return found
