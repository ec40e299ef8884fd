"""Every metric that a node serves, found where it is defined: beside its collector.

A definition is a `Metric` at the level of a module, alone or in a tuple or dict.
"""

from __future__ import annotations

import ast
import enum
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from raftctl.metrics import Metric

ROOT = Path(__file__).parents[2]
_USES_METRICS = "raftctl.metrics"


class Server(enum.Enum):
    """Which nodes serve a metric."""

    EVERY = "every node"
    CONTROLLER = "controllers"
    BROKER = "brokers"


_SERVERS = {
    "raftctl.admin.": Server.CONTROLLER,
    "raftctl.controller.": Server.CONTROLLER,
    "raftctl.": Server.EVERY,
    "broker.": Server.BROKER,
}
"""By how the name of the module begins; the first that fits."""
_UNITS = {
    "_bytes": "bytes",
    "bytes": "bytes",
    "byte_total": "bytes",
    "bytes_total": "bytes",
    "bytesin_total": "bytes",
    "bytesout_total": "bytes",
    "bytesrejected_total": "bytes",
    "log_size": "bytes",
    "ms": "ms",
    "_latency_avg": "ms",
    "_seconds": "s",
    "_seconds_total": "s",
    "_percent": "0 to 1",
    "persec": "1/s",
    "_rate": "1/s",
}
"""By how the name of the metric ends; the longest that fits. Others are counts and numbers."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A metric, and the module that has its definition."""

    metric: Metric
    module: str

    @property
    def server(self) -> Server:
        """Who serves it."""
        return next(who for begins, who in _SERVERS.items() if self.module.startswith(begins))

    @property
    def unit(self) -> str:
        """The unit of its values; empty for counts."""
        ends = [end for end in _UNITS if self.metric.name.endswith(end)]
        return _UNITS[max(ends, key=len)] if ends else ""


@cache
def definitions() -> Mapping[str, Defined]:
    """Every metric by its name, in the order of modules and lines."""
    found: dict[str, Defined] = {}
    for module in _modules():
        for metric in _defined_in(module):
            known = found.get(metric.name)
            assert known is None or known.metric is metric, f"{metric.name} is defined twice"
            found.setdefault(metric.name, Defined(metric, module))
    return found


def _modules() -> Iterator[str]:
    for package in ("raftctl", "broker"):
        for path in sorted((ROOT / package).rglob("*.py")):
            inside = ROOT / "raftctl" / "metrics" in path.parents
            if inside or _USES_METRICS in path.read_text(encoding="utf-8"):
                parts = path.relative_to(ROOT).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _defined_in(module: str) -> Iterator[Metric]:
    """The metrics that are assigned at the level of the module, not those that it imports."""
    loaded = importlib.import_module(module)
    assert loaded.__file__ is not None
    for node in ast.parse(Path(loaded.__file__).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for name in (part for one in targets for part in ast.walk(one)):
            if isinstance(name, ast.Name):
                yield from _metrics_of(getattr(loaded, name.id, None))


def _metrics_of(value: object) -> Iterator[Metric]:
    if isinstance(value, Metric):
        yield value
    elif isinstance(value, Mapping):
        yield from _metrics_of((*value, *value.values()))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in value:
            yield from _metrics_of(one)
