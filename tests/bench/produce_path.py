"""`python -m tests.bench.produce_path`: processor time of each step between producer and replicas.

One process, one thread, real files and sockets; the time is the thread's own (`thread_time`), so
that what else the machine does hardly shows. The steps are those of a leader and of one follower
for one batch; what an event loop adds is not among them.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from crc32c import crc32c

from broker.log.partition_log import _opening as opening
from broker.protocol.codec import (
    decode_response,
    encode_request,
    encode_response,
)
from broker.types import TopicPartition
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.real import RealRuntime
from tests.kit.pieces import decode_request
from tests.unit.broker.log.batches import make_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.log.partition_log import PartitionLog
    from raftctl.runtime.api import Buffer, Runtime

PRODUCE, FETCH = (0, 10), (1, 17)
TOPIC_ID = UUID(int=7)
RECORD_BYTES = 1024
BATCHES = 400
ROUNDS = 5
MICROSECONDS = 1e6


def measure(records: int, record_size: int) -> dict[str, float]:
    """Microseconds of one batch by step: the median of some rounds."""
    batch = make_batch([bytes(record_size)] * records)
    runtime = RealRuntime(log_level="error")
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        rounds = [_round(runtime, Path(directory) / str(number), batch) for number in range(ROUNDS)]
    runtime.close()
    return {
        name: round(statistics.median(one[name] for one in rounds), 1) for name in rounds[0]
    } | {"batch bytes": float(len(batch))}


def _round(runtime: Runtime, directory: Path, batch: bytes) -> dict[str, float]:
    directory.mkdir()
    leader, follower = (_log(runtime, directory / name) for name in ("leader", "follower"))
    frame = _produce_frame(batch)
    steps: dict[str, Callable[[], object]] = {
        "leader: decode Produce": lambda: decode_request(frame),
        "leader: check, append": lambda: leader.append_as_leader(batch, 0, 0),
        "leader: encode its answer": _produce_answer,
    }
    times = {name: _each(step) for name, step in steps.items()}
    offsets = iter(range(0, leader.log_end_offset, leader.log_end_offset // BATCHES))
    pieces: list[Buffer] = []
    times["leader: find and read, for each follower"] = _each(
        lambda: pieces.extend(_read(leader, next(offsets), len(batch)))
    )
    fetched = iter(pieces)
    times["leader: encode Fetch, for each follower"] = _each(lambda: _fetch_answer(pieces[0]))
    answer = bytearray(b"".join(_fetch_answer(pieces[0]))[4:])
    times["follower: decode Fetch"] = _each(lambda: decode_response(*FETCH, answer))
    times["follower: check, append"] = _each(lambda: follower.append_as_follower(next(fetched)))
    times["of these, CRC32C once"] = _each(lambda: crc32c(batch))
    times |= _sockets(frame)
    for log in (leader, follower):
        log.close()
    return times


def _each(step: Callable[[], object]) -> float:
    began = time.thread_time()
    for _ in range(BATCHES):
        step()
    return (time.thread_time() - began) / BATCHES * MICROSECONDS


def _log(runtime: Runtime, path: Path) -> PartitionLog:
    partition = TopicPartition("t", 0)
    return opening.create_log(runtime.files, str(path), partition, TopicConfig())


def _produce_frame(batch: bytes) -> bytearray:
    data = [{"index": 0, "records": batch}]
    message: dict[str, Any] = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": "t", "partition_data": data}],
    }
    return bytearray(encode_request(*PRODUCE, 1, "client", message)[4:])


def _produce_answer() -> object:
    partition: dict[str, Any] = {
        "index": 0,
        "error_code": 0,
        "base_offset": 1,
        "log_append_time_ms": -1,
        "log_start_offset": 0,
        "record_errors": (),
        "error_message": None,
    }
    topics = [{"name": "t", "partition_responses": [partition]}]
    return encode_response(*PRODUCE, 1, {"responses": topics, "node_endpoints": ()})


def _fetch_answer(records: Buffer) -> list[Any]:
    partition: dict[str, Any] = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 1,
        "last_stable_offset": 1,
        "log_start_offset": 0,
        "preferred_read_replica": -1,
        "records": [records],
    }
    topics = [{"topic": "t", "topic_id": TOPIC_ID, "partitions": [partition]}]
    return encode_response(*FETCH, 1, {"responses": topics, "node_endpoints": ()})


def _read(log: PartitionLog, offset: int, size: int) -> list[Buffer]:
    return log.read(offset, max_bytes=size, up_to_offset=log.log_end_offset, min_one=True)


def _sockets(frame: bytearray) -> dict[str, float]:
    """What the system takes to move one batch over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
    sending = receiving = 0.0
    buffer = memoryview(bytearray(len(frame)))
    with sender, receiver:
        for _ in range(BATCHES):
            left, got = memoryview(frame), 0
            while got < len(frame):
                began = time.thread_time()
                if left:
                    left = left[sender.send(left) :]
                sent = time.thread_time()
                got += receiver.recv_into(buffer[got:])
                sending += sent - began
                receiving += time.thread_time() - sent
    scale = MICROSECONDS / BATCHES
    return {
        "system: send over loopback": sending * scale,
        "system: receive": receiving * scale,
    }


def main() -> None:
    """Prints the steps as JSON."""
    parser = argparse.ArgumentParser(prog="tests.bench.produce_path", description=__doc__)
    parser.add_argument("--records", type=int, default=62, help="in a batch")
    parser.add_argument("--record-size", type=int, default=RECORD_BYTES)
    arguments = parser.parse_args()
    steps = measure(arguments.records, arguments.record_size)
    sys.stdout.write(json.dumps(steps, indent=2) + "\n")


if __name__ == "__main__":
    main()
