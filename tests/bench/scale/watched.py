"""`python -m tests.bench.scale.watched PROPERTIES RECORD`: a node that notes what is measured.

The node runs as ever, but for a broker: that follows the metadata log and has no plug-in, so that
only replaying is measured. Lines of JSON are appended to RECORD, their times those of
`time.perf_counter`, which all processes of a machine share:

* `stall`: the event loop came back so many milliseconds late; `own_ms` is its thread's processor
  time meanwhile, the rest is what it waited for the interpreter's lock or a processor;
* `leads`: the last look at which this node did not lead, and which it leads after;
* `image`: an image was published, of this offset (brokers only);
* `topic`: the first image that has the topic of this name (brokers only).
"""

from __future__ import annotations

import asyncio
import json
import os
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from raftctl.cli.files import read_config_file
from raftctl.node import Node
from raftctl.plugins import load_broker
from tests.bench.measured_node import run_until_killed

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.runtime.real import RealRuntime

LOOK_S = 0.01
STALL_MS = 5.0
"""Shorter ones are not noted."""
AWAITED = "reach-{}"
"""The names of the topics whose first image is noted."""


class Follower(Node):
    """A broker that only follows."""

    def _start_broker(self, *parts: object, **named: object) -> None:
        """No plug-in: no registration and no partitions."""


class Recorder:
    """Notes what happens in one node."""

    def __init__(self, node: Node, path: str) -> None:
        self._node = node
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._awaited = 0
        self._led = False

    def note(self, what: str, at: float, **fields: object) -> None:
        """Appends a line."""
        os.write(self._file, json.dumps({"what": what, "at": at, **fields}).encode() + b"\n")

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """As a publisher of the loader."""
        now = perf_counter()
        self.note("image", now, offset=image.offset)
        while (name := AWAITED.format(self._awaited)) in image.topics.ids:
            self.note("topic", now, name=name)
            self._awaited += 1

    async def look(self) -> None:
        """Looks at the clock and at who leads, for ever."""
        before, before_own = perf_counter(), thread_time()
        while True:
            await asyncio.sleep(LOOK_S)
            now, own = perf_counter(), thread_time()
            late_ms = (now - before - LOOK_S) * 1000
            if late_ms >= STALL_MS:
                own_ms = (own - before_own) * 1000
                self.note("stall", now, ms=round(late_ms, 1), own_ms=round(own_ms, 1))
            leads = self._node.driver is not None and self._node.driver.is_leader
            if leads and not self._led:
                self.note("leads", before)
            self._led = leads
            before, before_own = now, own


async def _run(properties: str, record: str, runtime: RealRuntime) -> None:
    config = read_config_file(properties)
    if config.is_broker:
        load_broker(config.broker_plugin)  # to import it is no stall of what is measured
    node = Node(config, runtime) if config.is_controller else Follower(config, runtime)
    recorder = Recorder(node, record)
    asyncio.get_running_loop().set_exception_handler(node.on_unhandled)
    looking = asyncio.create_task(recorder.look())
    try:
        await node.start()
        if node.loader is not None and not config.is_controller:
            node.loader.add_publisher(recorder)
        await node.ended
    finally:
        looking.cancel()
        await node.stop()


def main() -> None:
    """Runs the node that the command line names, until it is killed."""
    run_until_killed(_run)


if __name__ == "__main__":
    main()
