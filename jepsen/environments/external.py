"""External clusters: any cluster that speaks Kafka's protocol, known by its address.

`ExternalEnvironment` injects faults only if the owner of the cluster supplies a control
program, which is called with a verb and the name of a node. `check_cluster` verifies before a
test that the cluster answers and that its topic is usable.

The package must not know how the cluster was started. Of raftctl it knows
only how the file of a login is read.

Invariants: a kill, stop or pause counts only if the control program succeeded and, for a broker,
a connection that was opened before it was broken or fell silent. The cluster itself is never
reconfigured.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import struct
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.environments._base import Environment
from jepsen.environments._entrance import Entrance
from jepsen.errors import InputError

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import Mapping, Sequence

    from jepsen.environments._base import ClusterSpec, KeyValues, Link, Quality
    from jepsen.environments.raftctl import FileLogin

ROLES = ("controller", "broker")
TAKES_S = 60.0


class Node(NamedTuple):
    """A node of a cluster that the program controls."""

    role: str
    name: str
    node_id: int
    """The id by which Kafka clients know it."""


class Control:
    """Calls the program with a word and perhaps a node's name (docs/how-to/test-any-kafka.md).

        nodes                      prints a line a node: `controller NAME ID` or `broker NAME ID`
        kill, start, stop NAME     kill it, start it, terminate it and wait
        pause, resume NAME         stop and continue its process

    Calls are idempotent: starting a node that runs is no error. Exit status 0: done.
    """

    def __init__(self, command: str) -> None:
        """Ask for the nodes. InputError for a program that does not say which there are."""
        self._words = split(command)
        try:
            answer = subprocess.run(
                [*self._words, "nodes"], capture_output=True, text=True, timeout=TAKES_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"--control {command}: {error}") from None
        if answer.returncode:
            raise InputError(f"--control {command}: nodes: {_last_line(answer.stderr)}")
        self.nodes = [_node(line, command) for line in answer.stdout.splitlines()]
        if not self.names("broker"):
            raise InputError(f"--control {command}: nodes: no line `broker NAME ID`")

    def names(self, role: str) -> list[str]:
        """Return the names of the nodes in a role, in the order of the program."""
        return [node.name for node in self.nodes if node.role == role]

    async def do(self, what: str, node: str) -> None:
        """Wait until it is done. RuntimeError, with the program's last words, if it is not."""
        process = await asyncio.create_subprocess_exec(
            *self._words,
            what,
            node,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C is for the harness, which then has the program heal what is broken.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(TAKES_S):
                _, errors = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{what} {node}: {_last_line(errors.decode(errors='replace'))}")


def split(command: str) -> list[str]:
    """Return the words of the command, as a shell would split them.

    Raises InputError if it has none, or a quote is open.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--control {command}: {error}") from None
    if not words:
        raise InputError("--control: name a program")
    return words


def _node(line: str, command: str) -> Node:
    words = line.split()
    if len(words) != 3 or words[0] not in ROLES or not words[2].isdecimal():
        raise InputError(
            f"--control {command}: nodes: {line!r}: write `controller NAME ID` or `broker NAME ID`"
        )
    return Node(words[0], words[1], int(words[2]))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2] or "it said nothing"


CONNECT_S = 3.0
LOGIN_S = 10.0
ANSWER_S = 5.0
READ_S = 15.0
GRACE_S, SILENCE_S, AGAIN_S = 2.0, 1.0, 0.1
"""The time a fault may take to strike, the silence that counts, and the pause between attempts."""
API_VERSIONS = 18
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
CORRELATION = 4711
ANSWER_BYTES_MAX = 1 << 20


async def check_cluster(entrance: Entrance, topic: str, *, keys: int, replication: int) -> None:
    """Verify that a cluster can be tested with a topic of so many partitions and replicas.

    InputError if no address answers, too few brokers serve, or the topic has too few partitions or
    any record.
    """
    option = f"--bootstrap-servers {entrance.bootstrap_servers}"
    addresses = [one for one in entrance.bootstrap_servers.split(",") if one]
    context = None if entrance.login is None else entrance.login.context()
    found = await asyncio.gather(*(_asked(one, context) for one in addresses))
    if "" not in found:
        why = "; ".join(dict.fromkeys(found)) or "it names no address"
        raise InputError(f"{option}: no broker answers ({why}): is the address right?")
    try:
        async with asyncio.timeout(READ_S):
            await _check_topic(entrance, topic, keys, replication)
    except (TimeoutError, OSError) as error:
        why = str(error) or f"no answer within {READ_S:g} s"
        raise InputError(f"{option}: the cluster does not serve: {why}") from None


async def _asked(address: str, context: ssl.SSLContext | None) -> str:
    """Ask for the versions of its requests, as every client of Kafka does; why that fails."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        return f"{address}: write HOST:PORT, with a port below 65536"
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except TimeoutError:
        return f"{address}: no connection within {CONNECT_S:g} s"
    except OSError as error:
        return f"{address}: {error.strerror or error}"
    try:
        answers = await answers_kafka(reader, writer, ANSWER_S)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return "" if answers else f"{address}: it does not speak Kafka's protocol"


async def answers_kafka(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: float
) -> bool:
    """Return whether an ApiVersions request of version 0 is answered in time, and wholly."""
    try:
        async with asyncio.timeout(patience_s):
            return bool(await _ask(reader, writer, API_VERSIONS, 0, b""))
    except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
        return False


async def logs_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: FileLogin
) -> bool:
    """Return whether the broker accepts the login on a connection that is new (KIP-152)."""
    try:
        async with asyncio.timeout(LOGIN_S):
            mechanism, respond = await asyncio.to_thread(login.exchange)
            named = struct.pack(">h", len(mechanism)) + mechanism.encode()
            answer = await _ask(reader, writer, SASL_HANDSHAKE, 1, named)
            error, challenge = _number(answer), b""
            while not error and (response := respond(challenge)) is not None:
                token = struct.pack(">i", len(response)) + response
                error, challenge = _read_challenge(
                    await _ask(reader, writer, SASL_AUTHENTICATE, 0, token)
                )
            return not error
    except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError, struct.error):
        return False


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, api: int, version: int, body: bytes
) -> bytes:
    """Return the body of an answer. Raises ValueError, OSError and IncompleteReadError."""
    request = struct.pack(">hhih", api, version, CORRELATION, -1) + body
    writer.write(struct.pack(">i", len(request)) + request)
    size, correlation = struct.unpack(">ii", await reader.readexactly(8))
    if not (4 <= size < ANSWER_BYTES_MAX and correlation == CORRELATION):
        raise ValueError("it is no answer to the request")
    return await reader.readexactly(size - 4)


def _number(answer: bytes) -> int:
    number: int = struct.unpack_from(">h", answer)[0]
    return number


def _read_challenge(answer: bytes) -> tuple[int, bytes]:
    """Return the error and the challenge in an answer to SaslAuthenticate 0."""
    length = struct.unpack_from(">h", answer, 2)[0]
    position = 4 + max(0, length)
    size = max(0, struct.unpack_from(">i", answer, position)[0])
    return _number(answer), answer[position + 4 : position + 4 + size]


async def broker_addresses(entrance: Entrance) -> dict[int, tuple[str, int]]:
    """Return the host and port of each broker that serves, by id; empty if none answers in time."""
    from jepsen.environments.admin import ASK_S, ERRORS, open_admin

    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(ASK_S), open_admin(entrance) as admin:
            brokers = (await admin.describe_cluster())["brokers"]
        return {one["node_id"]: (str(one["host"]), int(one["port"])) for one in brokers}
    return {}


class Witness:
    """A connection to a broker, opened before a fault: it shows if the fault has struck.

    A process that ended has broken its connections, even if it was started again at once. One
    that stands still keeps them, and answers nothing.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int, login: FileLogin | None = None) -> Witness | None:
        """Connect to a broker, and log in: before a login a broker may answer only once.

        Return None if it does not answer: silence later would show nothing.
        """
        context = None if login is None else login.context()
        try:
            async with asyncio.timeout(CONNECT_S):
                found = cls(*await asyncio.open_connection(host, port, ssl=context))
        except (TimeoutError, OSError):
            return None
        is_in = (
            login is None
            or not login.has_user
            or await logs_in(found._reader, found._writer, login)
        )
        if is_in and await answers_kafka(found._reader, found._writer, SILENCE_S):
            return found
        await found.close()
        return None

    async def still_answers(self) -> bool:
        """Return whether the broker answers on, `GRACE_S` after it should have stopped."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GRACE_S
        while await answers_kafka(self._reader, self._writer, SILENCE_S):
            if loop.time() >= end_s:
                return True
            await asyncio.sleep(AGAIN_S)
        return False

    async def close(self) -> None:
        """End the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def _check_topic(entrance: Entrance, topic: str, keys: int, replication: int) -> None:
    """Raise InputError, TimeoutError or OSError."""
    # Loaded here: nobody who cannot connect needs a client.
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaError

    from jepsen.environments.admin import open_admin

    try:
        async with open_admin(entrance) as admin:
            cluster = await admin.describe_cluster()
            topics = {one["topic"]: one for one in await admin.describe_topics()}
        brokers = len(cluster["brokers"])
        if replication > brokers:
            serving = "1 broker serves" if brokers == 1 else f"{brokers} brokers serve"
            raise InputError(f"--replication {replication}: {serving}; give a lower one")
        if topic not in topics:
            return
        parts = [TopicPartition(topic, one["partition"]) for one in topics[topic]["partitions"]]
        consumer: Any = AIOKafkaConsumer(**entrance.aiokafka())
        await consumer.start()
        try:
            ends = await consumer.end_offsets(parts)
            begins = await consumer.beginning_offsets(parts)
        finally:
            await consumer.stop()
    except (KafkaError, AttributeError) as error:
        raise OSError(repr(error)) from error
    if len(parts) < keys:
        raise InputError(
            f"--topic {topic}: it has {len(parts)} partitions, not {keys} (--keys): "
            "choose another, or leave --topic out"
        )
    if records := sum(ends[one] - begins[one] for one in parts):
        raise InputError(
            f"--topic {topic}: it has {records} records, which a test would take for its own: "
            "choose another, or leave --topic out"
        )
    if written := sum(ends[one] for one in parts):
        raise InputError(
            f"--topic {topic}: it had {written} records, so that its offsets do not begin "
            "at 0: choose another, or leave --topic out"
        )


def entrance_of(bootstrap_servers: str, command_config: str) -> Entrance:
    """Return the addresses with the login of a file, if one is named; InputError."""
    if not command_config:
        return Entrance(bootstrap_servers)
    return Entrance(bootstrap_servers, _read_login(command_config), command_config)


def _read_login(command_config: str) -> FileLogin:
    # Knows the keys of the file, which are raftctl's too; nobody else needs it.
    from jepsen.environments.raftctl import read_login

    return read_login(command_config)


UNDO = {"kill": "start", "stop": "start", "pause": "resume"}
"""Each fault that stops a node from answering, and the command that ends it."""


class ExternalEnvironment(Environment):
    """A cluster of another owner, broken only by the program that its owner gives."""

    def __init__(self, spec: ClusterSpec) -> None:
        """Raise InputError for a program that does not control the cluster, or a login's file."""
        self._login: FileLogin | None = None
        if spec.command_config:
            self._login = _read_login(spec.command_config)
        self._entrance = Entrance(spec.bootstrap_servers, self._login, spec.command_config)
        self._control = Control(spec.control) if spec.control else None
        self._addresses: dict[int, tuple[str, int]] = {}
        """The addresses of brokers, by id, as far as they are known."""

    @property
    def bootstrap_servers(self) -> str:
        return self._entrance.bootstrap_servers

    @property
    def entrance(self) -> Entrance:
        return self._entrance

    @property
    def disk_faults(self) -> Mapping[str, Sequence[str]]:
        return {}

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        return {}

    @property
    def controllers(self) -> Sequence[str]:
        """The controllers that the program can break; none without one."""
        return self._control.names("controller") if self._control else ()

    @property
    def brokers(self) -> Sequence[str]:
        """The brokers that the program can break; none without one."""
        return self._control.names("broker") if self._control else ()

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        """Raise InputError: such a cluster has no keys and values."""
        raise InputError("--env external: it has no keys and values")

    async def leader(self) -> str | None:
        """Return None: clients of brokers cannot learn which controller is active."""
        return None

    async def replicas(self) -> Mapping[str, Mapping[str, Any]]:
        """See `Environment`: Kafka's clients cannot learn it."""
        return {}

    def broker_name(self, broker_id: int) -> str | None:
        nodes = self._control.nodes if self._control else ()
        found = [node.name for node in nodes if (node.role, node.node_id) == ("broker", broker_id)]
        return found[0] if found else None

    async def is_in_sync(self) -> bool:
        """Return True if clients see all partitions in sync, or nothing can be broken."""
        if self._control is None:
            return True
        # Not imported where nothing is broken.
        from jepsen.environments.admin import all_in_sync

        return await all_in_sync(self.entrance, len(self.brokers))

    async def leadership(self) -> tuple[str, int] | None:
        """Return None: clients of brokers cannot learn which controller is active."""
        return None

    async def _do(self, what: str, node: str) -> None:
        """RuntimeError where it failed, or had no effect although the program says it is done."""
        control = self._control
        if control is None:
            return
        if what not in UNDO:
            await control.do(what, node)
            return
        witness = await self._witness(node)
        try:
            await control.do(what, node)
            if witness is not None and await witness.still_answers():
                # Whatever comes late must not stay: nobody will undo what is not counted.
                await control.do(UNDO[what], node)
                raise RuntimeError(
                    f"{what} {node}: --control reports success, but the broker still answers"
                )
        finally:
            if witness is not None:
                await witness.close()

    async def _witness(self, node: str) -> Witness | None:
        """Return None for controllers, which clients cannot ask, and for silent brokers."""
        nodes = self._control.nodes if self._control else ()
        ids = [one.node_id for one in nodes if (one.role, one.name) == ("broker", node)]
        if not ids:
            return None
        self._addresses |= await broker_addresses(self.entrance)
        address = self._addresses.get(ids[0])
        return None if address is None else await Witness.open(*address, self._login)

    async def kill(self, node: str) -> None:
        await self._do("kill", node)

    async def terminate(self, node: str) -> None:
        await self._do("stop", node)

    async def start_node(self, node: str) -> None:
        await self._do("start", node)

    async def pause(self, node: str) -> None:
        await self._do("pause", node)

    async def resume(self, node: str) -> None:
        await self._do("resume", node)

    async def set_blocked(self, links: Sequence[Link]) -> None:
        """Do nothing: the program names no links."""

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """Do nothing: the program names no links."""

    async def set_clocks(self, offsets_ms: Mapping[str, int]) -> None:
        """Do nothing: the program has no command for clocks."""

    async def remove_voter(self, node: str) -> bool:
        """Return False: the program has no command for voters."""
        return False

    async def add_voter(self, node: str) -> bool:
        """Return False: the program has no command for voters."""
        return False

    async def replace_disk(self, node: str) -> None:
        """Do nothing: the program has no command for disks."""

    async def inject(self, kind: str, nodes: Sequence[str], amount: float | None) -> bool:
        """Return False: the program has no command for disk faults."""
        return False

    async def relieve(self, kind: str, nodes: Sequence[str]) -> None:
        """Do nothing: no disk fault was injected."""
