"""A session beside Apache Kafka: its jars, clusters that run meanwhile, figures told at once."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from tests.bench.figures import line, report
from tests.bench.kafka.clusters import kafka_jars, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster, Maker
    from tests.bench.kafka.warmth import Warmth

CACHE = Path(__file__).parents[3] / "out" / "bench"


class Report:
    """What was measured so far, in a file."""

    def __init__(
        self,
        output: Path,
        kafka_version: str,
        warmth: Warmth | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`warmth` and `settings` stand beside the figures: what they depend on."""
        self._output = output
        self._head = {"kafka_version": kafka_version, **(settings or {})}
        self._warmth = warmth
        self._figures: dict[str, Any] = {}
        self.failures: list[str] = []
        """The parts that could not be measured."""

    def attempt(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measures and tells a part. One that fails does not cost the hour of the others."""
        with self.attempting(name):
            self.tell(measure())

    @contextlib.contextmanager
    def attempting(self, name: str) -> Iterator[None]:
        """Names what fails within the block, and goes on after it."""
        try:
            yield
        except (OSError, RuntimeError, KafkaException, subprocess.SubprocessError) as error:
            self.failures.append(name)
            sys.stdout.write(f"{name}: failed: {error}\n")

    def tell(self, part: dict[str, Any]) -> None:
        """At once, since an hour of work may fail in the end."""
        self._figures.update(part)
        for name, value in part.items():
            sys.stdout.write(line(name, value))
        sys.stdout.flush()
        warmth = {} if self._warmth is None else {"warmth": self._warmth.document()}
        document = {**self._head, **warmth, **report(self._figures)}
        self._output.parent.mkdir(parents=True, exist_ok=True)
        self._output.write_text(json.dumps(document, indent=2))


def end_with_clusters() -> None:
    """Lets SIGTERM end the clusters too: twelve processes would outlive one that just ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))


def jars(peer: str, kafka_version: str) -> Path | None:
    """Apache Kafka's; None, with the reason told, if ours is measured alone."""
    lacks = missing() if peer == "kafka" else "nothing, it was not asked for"
    if lacks:
        sys.stdout.write(f"kafka: no peer to compare with; missing: {lacks}\n")
        return None
    return kafka_jars(kafka_version, CACHE)


@contextlib.contextmanager
def running(
    found: Sequence[Maker], warm_up: Callable[[Cluster], object]
) -> Iterator[list[Cluster]]:
    """All clusters, started, usable and warm."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        clusters = [maker.make(Path(directory) / maker.name) for maker in found]
        try:
            for cluster in clusters:
                # One after the other: each is soonest ready alone, and none is fenced meanwhile.
                cluster.start()
                cluster.wait_usable()
            for cluster in clusters:
                warm_up(cluster)
            yield clusters
        finally:
            for cluster in clusters:
                cluster.stop()
