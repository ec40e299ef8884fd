"""One virtual machine with Apache Kafka's tools and clients: starting it takes longer than a tool.

The tests drive `java/Peer.java`, by a line of JSON for each tool or for clients that run at once.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tests.bench.kafka.clusters import kafka_jars
from tests.peers.programs import QUICK_JAVA, UTF_8, JavaTools, compiled
from tests.peers.tools import CACHE, KAFKA_VERSION, installing, need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACTIONS = ("create", "acks", "idempotent", "transaction", "classic", "consumer")
"""All that a client does: a topic, a record in each way, and a group of each protocol."""
TOOLS = "org.apache.kafka.tools."
TOPICS = f"{TOOLS}TopicCommand"
GROUPS = f"{TOOLS}consumer.group.ConsumerGroupCommand"
ACLS = f"{TOOLS}AclCommand"
TOKENS = f"{TOOLS}DelegationTokenCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKEN_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
TOKEN_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
STOP_S = 10


@dataclass(frozen=True, slots=True)
class JavaClient:
    """One client and what it does, in order."""

    name: str
    properties: Mapping[str, str]
    topic: str
    actions: Sequence[str] = ACTIONS


class Ended(NamedTuple):
    """What a tool has left."""

    status: int
    out: str
    error: str


class Jvm:
    """A running virtual machine; made by `running_jvm`."""

    def __init__(self, process: subprocess.Popen[str], requests: IO[str], answers: IO[str]) -> None:
        self._process, self._requests, self._answers = process, requests, answers

    def tool(self, name: str, *arguments: str) -> Ended:
        """Run a tool to its end, whether it fails or not."""
        return Ended(**self._ask({"tool": name, "arguments": arguments}))

    def clients(self, *clients: JavaClient) -> dict[str, dict[str, Any]]:
        """By client and action what came of it: the class of an error, else what the action says.

        The text of an error is that of the action `ACTION error`.
        """
        asked = [
            {
                "name": one.name,
                "topic": one.topic,
                "group": f"{one.topic}-group",
                "properties": dict(one.properties),
                "actions": list(one.actions),
            }
            for one in clients
        ]
        found: dict[str, dict[str, Any]] = self._ask({"clients": asked})
        return found

    def write_stores(self, source: Path, password: str, folder: Path) -> None:
        """Copy a PKCS12 store to `keys.jks`, its authority to `trusted.jks` and `trusted.p12`."""
        self._ask(
            {
                "store": str(source),
                "password": password,
                "keys": str(folder / "keys.jks"),
                "JKS": str(folder / "trusted.jks"),
                "PKCS12": str(folder / "trusted.p12"),
            }
        )

    def _ask(self, asked: Mapping[str, Any]) -> Any:
        self._requests.write(json.dumps(asked) + "\n")
        self._requests.flush()
        line = self._answers.readline()
        assert line, f"the virtual machine has ended with {self._process.wait(STOP_S)}"
        return json.loads(line)


@contextlib.contextmanager
def running_jvm(log: Path, token: Path) -> Iterator[Jvm]:
    """A virtual machine that may read tokens from a file; what it complains of goes to a log."""
    need("java", "javac", "mvn")
    with installing():
        core = kafka_jars(KAFKA_VERSION, CACHE)
    tools = JavaTools(KAFKA_VERSION).jars
    jars = f"{tools}/*:{core}/*"
    classes = compiled("Peer", jars)
    options = [f"-D{TOKEN_FILES}={token}", f"-D{TOKEN_URLS}={token.as_uri()}"]
    command = ["java", *QUICK_JAVA, *UTF_8, *options, "-cp", f"{classes}:{jars}", "Peer"]
    with log.open("w") as complaints:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield Jvm(process, process.stdin, process.stdout)
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_S)
            finally:
                process.kill()
