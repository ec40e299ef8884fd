"""The same inputs give the same records in every process, whatever its hash seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftctl.metadata.codec import pack_records
from raftctl.metadata.requests.cluster import NewTopic
from tests.unit.raftctl.controller.cluster import SESSION_MS, Cluster

ROOT = Path(__file__).resolve().parents[4]


def trace(seed: int) -> str:
    """A digest of the log that a fixed story leaves."""
    cluster = Cluster(seed=seed)
    for broker_id in range(1, 7):
        cluster.start(broker_id, rack=f"rack {broker_id % 3}")
    keys = ("retention.ms", "segment.ms", "max.message.bytes")
    configs = tuple((key, "1000") for key in keys)
    cluster.create(*(NewTopic(f"topic-{i}", 7, 3, (), configs) for i in range(9)))
    cluster.heartbeat(2, want_shut_down=True)
    cluster.fence(3)
    cluster.delete(("topic-4", None), ("topic-2", None))
    cluster.tick(SESSION_MS)
    written = pack_records([*cluster.records, *cluster.image.records()])
    return hashlib.sha256(b"".join(written)).hexdigest()


@pytest.mark.req("C1")
def test_records_do_not_depend_on_the_hash_seed() -> None:
    code = f"from {__name__} import trace; print(trace(5))"
    digests = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(run.stdout.strip())
    assert digests == [trace(5), trace(5)]
    assert trace(6) != trace(5)
