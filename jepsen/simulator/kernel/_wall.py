"""The wall clock of a world: virtual time since a fixed date, and each node's error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jepsen.simulator.kernel.process import Process

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def wall_ms(now_s: float, process: Process | None) -> float:
    """Milliseconds since 1970 at the virtual time `now_s`, by the clock of a process's node."""
    offset_ms = process.node.clock_offset_ms if process is not None else 0
    return EPOCH_MS + now_s * 1000 + offset_ms
