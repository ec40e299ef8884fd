"""Whether nodes stay as they are: memory, open files, threads, tasks. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MEBIBYTE = 1 << 20
FLAT = 0.05
"""The part by which memory may differ from what it was after the first half hour."""
LEFT_OVER = 3
"""So many more of anything at rest are no leak, or FLAT of what there was."""
SILENT_S = 60.0
"""A node that has noted nothing for so long has ended."""
COUNTED = ("files", "threads", "tasks")


class Sample(NamedTuple):
    """What a node held at a moment."""

    node: str
    at_s: float
    """Seconds of the system's clock."""
    pid: int
    memory_bytes: int
    files: int
    threads: int
    tasks: int


class Span(NamedTuple):
    """From and to, in seconds of the system's clock."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Soak:
    """When what was."""

    whole: Span
    rests: Sequence[Span]
    """Without clients, after each round."""

    @property
    def flat_from_s(self) -> float:
        """The end of the first half hour, or of a sixth of a soak that is shorter than three."""
        return self.whole.begin_s + min(1800.0, self._length_s / 6)

    @property
    def window_s(self) -> float:
        """Of one median: ten minutes, or a third of the time before memory is to be flat."""
        return min(600.0, self._length_s / 18)

    @property
    def _length_s(self) -> float:
        return self.whole.end_s - self.whole.begin_s


def judge(
    samples: Iterable[Sample], soak: Soak, spared: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """By node that lived from the first half hour to the end, what became of it; and the problems.

    `spared`: the nodes that no fault has ended, which must have lived.
    """
    by_node: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if soak.flat_from_s <= sample.at_s <= soak.whole.end_s:
            by_node[sample.node].append(sample)
    lived = {node: of for node, of in by_node.items() if _lived(of, soak)}
    found: dict[str, Any] = {}
    problems = [f"{node}: did not live to the end" for node in spared if node not in lived]
    for node, of in sorted(lived.items()):
        found[node], wrong = _judged(of, soak)
        problems += [f"{node}: {one}" for one in wrong]
    return found, problems


def _lived(samples: Sequence[Sample], soak: Soak) -> bool:
    """Whether it is one process that still noted something at the end."""
    return len({one.pid for one in samples}) == 1 and soak.whole.end_s - samples[-1].at_s < SILENT_S


def _judged(samples: Sequence[Sample], soak: Soak) -> tuple[dict[str, Any], list[str]]:
    memory = medians(samples, soak)
    change = max((abs(one / memory[0] - 1) for one in memory), default=0.0)
    found: dict[str, Any] = {
        "memory_mib": [round(one / MEBIBYTE, 2) for one in memory],
        "memory_change": round(change, 4),
    }
    problems = []
    if change > FLAT:
        problems.append(f"memory changed by {change:.1%}: {found['memory_mib']} MiB")
    for name in COUNTED:
        counts = _at_rest(samples, soak.rests, name)
        found[f"{name}_at_rest"] = counts
        if has_grown(counts):
            problems.append(f"{name} at rest: {counts}")
    return found, problems


def medians(samples: Sequence[Sample], soak: Soak) -> list[float]:
    """Of memory, one window after the other since it is to be flat; only whole windows count."""
    windows: dict[int, list[int]] = defaultdict(list)
    for sample in samples:
        windows[int((sample.at_s - soak.flat_from_s) / soak.window_s)].append(sample.memory_bytes)
    count = int((soak.whole.end_s - soak.flat_from_s) / soak.window_s + 1e-6)
    return [float(statistics.median(windows[one])) for one in range(count) if windows[one]]


def _at_rest(samples: Sequence[Sample], rests: Sequence[Span], name: str) -> list[int]:
    """The fewest of each rest: what ends within it is no leak."""
    found = []
    for rest in rests:
        counts = [getattr(one, name) for one in samples if rest.begin_s <= one.at_s <= rest.end_s]
        if counts:
            found.append(min(counts))
    return found


def has_grown(counts: Sequence[int]) -> bool:
    """Whether there are more in the last third than in the first, by more than chance explains."""
    third = len(counts) // 3
    if not third:
        return False
    first, last = statistics.median(counts[:third]), statistics.median(counts[-third:])
    return last - first > max(LEFT_OVER, FLAT * first)


def series(
    samples: Iterable[Sample], soak: Soak, name: str, most: int = 300
) -> Mapping[str, list[tuple[float, float]]]:
    """By node, hours since the beginning and a value; of many samples every so many-th."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in samples:
        hours = (one.at_s - soak.whole.begin_s) / 3600
        found[one.node].append((hours, float(getattr(one, name))))
    return {node: of[:: max(1, len(of) // most)] for node, of in sorted(found.items())}
