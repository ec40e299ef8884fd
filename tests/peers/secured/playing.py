"""Plays the cases of all libraries at the same time, each library in a process of its own."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.peers.programs import KAFKAJS, franz_go_program, kafkajs_modules
from tests.peers.secured.cases import Case, Outcome
from tests.peers.tools import ROOT, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PYTHON = {
    "confluent-kafka": "librdkafka",
    "kafka-python": "kafka_python",
    "aiokafka": "aio_kafka",
}
"""Libraries to modules."""
LIBRARIES = (*PYTHON, "kafkajs", "franz-go")
PROGRAM_S = 90


def playing(given: Mapping[str, Sequence[Case]]) -> dict[str, Future[dict[str, Outcome]]]:
    """Begin with all libraries; each will come to its cases' outcomes, by their names."""
    commands = {library: _command(library) for library in given}
    pool = ThreadPoolExecutor(len(given))
    futures = {
        library: pool.submit(_played, *commands[library], some) for library, some in given.items()
    }
    pool.shutdown(wait=False)
    return futures


def _played(
    command: Sequence[str | Path], environment: Mapping[str, str], some: Sequence[Case]
) -> dict[str, Outcome]:
    given = json.dumps([case.document() for case in some])
    printed = run(command, stdin=given, folder=ROOT, environment=environment, timeout_s=PROGRAM_S)
    outcomes = [Outcome(**document) for document in json.loads(printed)]
    return {case.name: outcome for case, outcome in zip(some, outcomes, strict=True)}


def _command(library: str) -> tuple[list[str | Path], dict[str, str]]:
    """Return the command of a library's program, which is built if there is none yet."""
    if library in PYTHON:
        return [sys.executable, "-m", "tests.peers.secured", PYTHON[library]], {}
    if library == "franz-go":
        return [franz_go_program(), "secured"], {}
    environment = {"NODE_PATH": str(kafkajs_modules()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return ["node", KAFKAJS / "secured.js"], environment
