"""What the operations of a partition's log come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Appended(NamedTuple):
    """Where a produced batch stands now, or stood already if it is a repetition."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int
    """-1 unless the broker's time was put in."""
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a log found, for the operator."""

    segments_checked: int = 0
    bytes_cut: int = 0
    indexes_rebuilt: int = 0
    batches_noted: int = 0
    """Batches whose headers were read because no snapshot of the producers covers them."""
    lost_from: int | None = None
    """The offset from which on records that had been durable are damaged or gone; None if none."""
