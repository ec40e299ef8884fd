"""`python -m tests.bench.scale.steps`: what each step of the controller costs for a partition.

One process, one thread and no network; the time is the thread's own (`thread_time`), so that what
else the machine does hardly shows. `--partitions 2000000` takes about a minute.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from raftctl.controller import ControllerConfig, QuorumController
from raftctl.loader import Snapshots, image_of
from raftctl.loader._snapshots import id_of
from raftctl.metadata.codec import pack_payload, replay_payload
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import Endpoint
from raftctl.metadata.requests.cluster import (
    BrokerHeartbeatRequest,
    CreateTopicsRequest,
    NewTopic,
    RegisterBrokerRequest,
)
from raftctl.runtime.real import RealRuntime, make_collector
from raftctl.storage.snapshots import SnapshotStore
from tests.bench.scale.loading import resident_mib
from tests.kit.deltas import delta_between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record

CLUSTER_ID = "cluster"
BROKERS = 30
PARTITIONS = 100
REQUEST_TOPICS = 10
SESSION_MS = 9_000
ONE_TOPIC = 100


class Steps:
    """One controller with a standby, and the processor time of each step."""

    def __init__(self) -> None:
        config = ControllerConfig(
            cluster_id=CLUSTER_ID, session_timeout_ms=SESSION_MS, leader_rebalance=False
        )
        self.controller = QuorumController(config, random.Random(1))
        self.standby = EMPTY_IMAGE
        self.taken_s: dict[str, float] = {}
        self.longest_s: dict[str, float] = {}
        self.changes = 0
        self._offset = -1
        self._append(self.controller.claim(1, EMPTY_IMAGE, 0))

    def timed(self, step: str, call: Callable[[], Any]) -> Any:
        """Calls it and counts its time to the step."""
        began = thread_time()
        result = call()
        taken_s = thread_time() - began
        self.taken_s[step] = self.taken_s.get(step, 0.0) + taken_s
        self.longest_s[step] = max(self.longest_s.get(step, 0.0), taken_s)
        return result

    def handle(self, request: Any, step: str = "decide") -> None:
        """What becomes of a request."""
        result = self.timed(step, lambda: self.controller.handle(request, 0))
        self._append(result.records)

    def settle(self) -> None:
        """Ticks as long as one is due at once."""
        while self.controller.deadline_ms() == 0:
            self._append(self.timed("decide", lambda: self.controller.tick(0)))

    def _append(self, records: Sequence[Record]) -> None:
        if not records:
            return
        payload = self.timed("pack", lambda: pack_payload(records))
        self._offset += len(records)
        self.changes += len(records)
        self.timed("replay", lambda: self.controller.appended(records, self._offset, 1, 0))
        self.timed("image", self.controller.seal)
        self.controller.committed(self._offset)
        delta, base = MetadataDelta(self.standby), self._offset - len(records) + 1
        self.timed("standby: replay", lambda: replay_payload(delta, payload, len(records), base))
        self.standby = self.timed("standby: image", lambda: delta.apply(self._offset, 1, 0))

    def reset(self) -> None:
        """Forgets the times."""
        self.taken_s, self.longest_s, self.changes = {}, {}, 0


def report(name: str, count: int, steps: Steps) -> None:
    """One line of JSON: microseconds for each change by step, and the longest call of each."""
    line = {
        "what": name,
        "changes": count,
        "us": {
            step: round(taken * 1e6 / max(count, 1), 2) for step, taken in steps.taken_s.items()
        },
        "longest_ms": {step: round(taken * 1e3, 1) for step, taken in steps.longest_s.items()},
        "rss_mib": resident_mib(),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    steps.reset()


def grow(steps: Steps, partitions: int) -> None:
    """Brokers that are active, and topics of a hundred partitions."""
    for broker_id in range(1, BROKERS + 1):
        steps.handle(
            RegisterBrokerRequest(
                broker_id,
                UUID(int=broker_id),
                CLUSTER_ID,
                (Endpoint("PLAINTEXT", "127.0.0.1", 20_000 + broker_id),),
                f"rack-{broker_id % 3}",
                (UUID(int=1000 + broker_id),),
            )
        )
        steps.handle(
            BrokerHeartbeatRequest(
                broker_id,
                steps.controller.image.brokers[broker_id].broker_epoch,
                2**62,
                False,
                False,
            )
        )
        steps.settle()
    steps.reset()
    topics = partitions // PARTITIONS
    for first in range(0, topics, REQUEST_TOPICS):
        names = range(first, min(topics, first + REQUEST_TOPICS))
        new = tuple(NewTopic(f"topic-{number:05}", PARTITIONS, 3) for number in names)
        steps.handle(CreateTopicsRequest(new))
    report("create", partitions, steps)
    for number in range(ONE_TOPIC):
        steps.handle(CreateTopicsRequest((NewTopic(f"one-{number}", 1, 3),)))
    report("one topic", ONE_TOPIC, steps)


def measure_snapshot(steps: Steps, partitions: int) -> MetadataImage:
    """Writes the image as a snapshot and loads it."""
    image = steps.standby
    runtime = RealRuntime(log_level="error")
    with tempfile.TemporaryDirectory(prefix="raftctl-scale-") as directory:
        store = SnapshotStore(runtime.files, directory)
        snapshots = Snapshots(store, runtime.worker("snapshots"), runtime.log)
        steps.timed("write", lambda: snapshots._write(image, 0, None))
        read = steps.timed("read", lambda: store.read(id_of(image)))
        loaded: MetadataImage = steps.timed("image_of", partial(image_of, read))
        if loaded != image:
            raise RuntimeError("the snapshot is another image")
        del read
    runtime.close()
    steps.timed("delta_between", lambda: delta_between(image, loaded))
    steps.timed("between_empty_and", lambda: MetadataDelta.between_empty_and(image))
    steps.timed("gc.collect", gc.collect)
    report("snapshot", partitions, steps)
    return loaded


def main() -> None:
    """Measures at one size."""
    parser = argparse.ArgumentParser(prog="tests.bench.scale.steps", description=__doc__)
    parser.add_argument("--partitions", type=int, default=200_000)
    partitions = parser.parse_args().partitions
    make_collector().start()
    steps = Steps()
    grow(steps, partitions)
    epochs = {one: steps.controller.image.brokers[one].broker_epoch for one in (1, 2)}
    steps.handle(BrokerHeartbeatRequest(1, epochs[1], 2**62, True, False))
    steps.settle()
    report("crash of 1", steps.changes, steps)
    steps.handle(BrokerHeartbeatRequest(2, epochs[2], 2**62, False, True))
    steps.settle()
    report("controlled shutdown", steps.changes, steps)
    measure_snapshot(steps, partitions)


if __name__ == "__main__":
    main()
