"""Latencies of many records, summed up as Apache Kafka's performance tools do."""

from __future__ import annotations

from array import array
from typing import Any

MILLISECONDS = 1000
PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99_9_ms": 0.999}


class Latencies:
    """Eight bytes a record; the mean, the greatest and the percentiles of all."""

    def __init__(self) -> None:
        self._seconds = array("d")

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, seconds: float) -> None:
        """One record's."""
        self._seconds.append(seconds)

    def summary(self) -> dict[str, Any]:
        """Milliseconds by name: `avg_ms`, `max_ms` and the percentiles; None if there are none.

        A percentile is the smallest latency that at least this share of all does not exceed.
        """
        ordered = sorted(self._seconds)
        if not ordered:
            return {"avg_ms": None, "max_ms": None, **dict.fromkeys(PERCENTILES)}
        milliseconds = {
            "avg_ms": sum(ordered) / len(ordered),
            "max_ms": ordered[-1],
            **{name: _at(ordered, share) for name, share in PERCENTILES.items()},
        }
        return {name: round(value * MILLISECONDS, 3) for name, value in milliseconds.items()}


def _at(ordered: list[float], share: float) -> float:
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, rank - 1)]
