"""A log written and read by Apache Kafka's own tools, and so by its Java clients.

Each `send` is a run of its VerifiableProducer, each `final-poll` one of its VerifiableConsumer in a
group of its own, from the start of the log to the end that there is when it begins. The producer
chooses partitions by itself, so the topic has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jepsen.checkers import check_availability
from jepsen.checkers.kafka import check_kafka
from jepsen.client import Completion, failed, ok, unknown
from jepsen.errors import InputError
from jepsen.generator.combinators import Cycle, Stagger, UntilOk, once, phases, reserve
from jepsen.generator.core import Numbered, Todo
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads._logs import LogClient
from jepsen.workloads.sessions import SESSION_TIMEOUT_MS, create_topic, session

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from jepsen.client import Client
    from jepsen.environments import Entrance, Environment
    from jepsen.history import Op
    from jepsen.workloads.sessions import LogSession

TOOLS = ("producer", "consumer")
KEY = "0"
BATCH = 20
"""Records a run of the producer sends."""
READ_EVERY_S = 3.0
TOOL_S = 30.0
"""How long a tool may take, Java's start included; what it has reported by then counts."""
SLACK_S = 10.0
LAST_BATCHES = 1_000_000
ALL_ACKS = "-1"
Event = dict[str, Any]


def check_tools(kafka_home: str) -> None:
    """InputError for a folder without the tools."""
    for tool in TOOLS:
        script(kafka_home, tool)


def script(kafka_home: str, tool: str) -> Path:
    """Return the start script of a tool in a distribution of Apache Kafka. Raises InputError."""
    path = Path(kafka_home) / "bin" / f"kafka-verifiable-{tool}.sh"
    if not (kafka_home and os.access(path, os.X_OK)):
        raise InputError(f"--kafka-home {kafka_home}: no program {path}: name a folder of Kafka's")
    return path


class VerifiableClient(LogClient):
    """`send` of a batch of values, and `final-poll` of all that there is."""

    def __init__(
        self, session: LogSession, options: WorkloadOptions, entrance: Entrance, process: int
    ) -> None:
        super().__init__(session)
        self._where = ["--bootstrap-server", entrance.bootstrap_servers, "--topic", options.topic]
        self._login = entrance.command_config
        self._home = options.kafka_home
        self._acks = ALL_ACKS if options.acks == "all" else options.acks
        self._groups = (f"{options.topic}-{process}-{number}" for number in count())
        self.does = {"send": self._send, "final-poll": self._final_poll}

    async def _send(self, op: Op) -> Completion:
        """Values are `PREFIX.NUMBER` to the tool. Nothing that it was to send has surely failed."""
        values = [value for _, _, value in op.value]
        acked: dict[int, int] = {}

        def is_over(event: Event) -> bool:
            if event.get("name") == "producer_send_success":
                acked[value_of(event["value"])] = event["offset"]
            return len(acked) == len(values)

        many = ["--max-messages", str(len(values)), "--value-prefix", str(values[0] // BATCH)]
        await self._run("producer", [*many, "--acks", self._acks], is_over)
        sent = [
            ["send", KEY, [acked[value], value] if value in acked else value] for value in values
        ]
        if len(acked) == len(values):
            return ok(sent)
        return unknown(sent, f"{len(acked)} of {len(values)} were acknowledged")

    async def _final_poll(self, op: Op) -> Completion:
        end = (await self.session.ends([KEY], committed_only=False))[KEY]
        found: list[list[int]] = []

        def is_over(event: Event) -> bool:
            if event.get("name") == "record_data":
                found.append([event["offset"], value_of(event["value"])])
            return bool(found) and found[-1][0] >= end - 1

        group = ["--group-id", next(self._groups), "--reset-policy", "earliest", "--verbose"]
        patience = ["--session-timeout", str(SESSION_TIMEOUT_MS)]
        if end:
            await self._run("consumer", [*group, *patience], is_over)
        if end and not (found and found[-1][0] >= end - 1):
            return failed(op.value, f"not at the end {end} in time: {found[-1:]}")
        return ok([["poll", {KEY: found}]])

    async def _run(self, tool: str, arguments: list[str], is_over: Callable[[Event], bool]) -> None:
        """Hand the tool's reports over, until it is over, the tool ends, or time is up."""
        process = await asyncio.create_subprocess_exec(
            script(self._home, tool),
            *self._where,
            # Deprecated since Kafka 4.2, and all releases have it.
            *([f"--{tool}.config", self._login] if self._login else []),
            *arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TOOL_S):
                    async for line in process.stdout:
                        if is_over(_event(line)):
                            break
        finally:
            # Scripts may have started others.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def value_of(text: str) -> int:
    """Return the number that the tool was to send as `PREFIX.NUMBER`."""
    prefix, number = text.split(".")
    return int(prefix) * BATCH + int(number)


def _event(line: bytes) -> Event:
    """Empty for what is none, such as a warning of Java."""
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return {}


def _batch(number: int) -> Todo:
    values = range(number * BATCH, (number + 1) * BATCH)
    return Todo("send", [["send", KEY, value] for value in values])


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    made = session(environment, options)
    return VerifiableClient(made, options, environment.entrance, process)


def verifiable(options: WorkloadOptions) -> Workload:
    """Half of the threads send, half read all there is; at the end it is read once more."""
    senders = max(1, options.concurrency // 2)
    reads = Stagger(READ_EVERY_S, Cycle(once("final-poll", [["poll"]])))
    last = UntilOk(Numbered(_batch, LAST_BATCHES))
    return Workload(
        "verifiable",
        partial(_client, options),
        reserve(senders, Numbered(_batch), reads),
        {"kafka": check_kafka, "availability": check_availability},
        final=phases(last, UntilOk(Cycle(once("final-poll", [["poll"]])))),
        op_timeout_s=TOOL_S + SLACK_S,
        prepare=partial(create_topic, options=replace(options, keys=1)),
    )
