"""Administrators who change metadata of every kind while everything goes wrong.

Configs, quotas, topics, their partitions and replicas through brokers, keys through controllers.
What each was told is held against every image (`jepsen.simulator.properties.Register`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from functools import partial
from itertools import count, permutations
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from jepsen.simulator.cluster import BROKER_PORT, CONTROLLER_PORT, node_id
from jepsen.simulator.properties import Register
from raftctl.client import OutcomeUnknownError, connect
from raftctl.errors import ErrorCode, KafkaError
from tests.simulation.chaos_clients import TOPIC, new_topic
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from jepsen.simulator.cluster import SimCluster
    from jepsen.simulator.world import SimRuntime
    from raftctl.metadata.image import MetadataImage

    Change = Callable[[SimRuntime, int], Coroutine[Any, Any, None]]
    Ask = Callable[[], Coroutine[Any, Any, int]]

TIMEOUT_MS = 2_000
PATIENCE_S = 4.0
CONNECT_S = 1.0
PAUSE_S = 0.6
UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors that say nothing of what became of a request."""
TOPIC_RESOURCE = 2
USER = "administrator"
KEY = "administered"
RETENTION_MS = 10**10
PARTITIONS_MAX = 3
GONE = "gone"
REASSIGNED = "administered-replicas"


class NotSentError(Exception):
    """Nobody was there to be asked, so nothing was done."""


class Administrators:
    """One for each kind of change; their topics are besides those of others."""

    def __init__(self, cluster: SimCluster, duration_ms: int) -> None:
        """They change something until `duration_ms` after they began, and once more then."""
        self.world = cluster.world
        self.cluster = cluster
        self._duration_ms = duration_ms
        self._registers: list[Register] = cluster.properties.registers
        self._config = self._register("retention.ms", _retention_ms)
        self._quota = self._register("quota", _quota)
        self._key = self._register("key", _key)
        self._replicas = self._register("replicas", _replicas)

    def begin(self) -> list[asyncio.Future[Any]]:
        """Starts them; returns what comes to an end when nothing goes wrong any more."""
        changes: dict[str, Change] = {
            "configs": self._change_config,
            "quotas": self._change_quota,
            "topics": self._change_topic,
            "keys": self._put_key,
            "replicas": self._reassign,
        }
        return [
            self.world.start(f"{name}-administrator", partial(self._change, change)).done
            for name, change in changes.items()
        ]

    async def recover(self) -> None:
        """Nothing to do: they have ended."""

    def judge(self) -> str:
        """Tells what became of the changes."""
        told = Counter(outcome for one in self._registers for outcome in one.outcomes)
        assert told["done"], "no change was acknowledged"
        return "changes " + " ".join(f"{k}={told[k]}" for k in sorted(told))

    def is_asked_for(self, name: str) -> bool:
        """Whether a topic is one of theirs."""
        return name.startswith("administered-")

    def _register(self, name: str, read: Callable[[MetadataImage], object]) -> Register:
        register = Register(name, read)
        self._registers.append(register)
        return register

    async def _change(self, change: Change, runtime: SimRuntime) -> None:
        """Changes one after the other while things go wrong, and once when they do not."""
        end_s = self.world.loop.time() + self._duration_ms / 1000
        for number in count(1):
            last = self.world.loop.time() >= end_s
            await change(runtime, number)
            if last:
                return
            await asyncio.sleep(runtime.random.uniform(0, 2 * PAUSE_S))

    # --- changes --------------------------------------------------------------------------------

    async def _change_config(self, runtime: SimRuntime, number: int) -> None:
        value = str(RETENTION_MS + number)
        configs = [{"name": "retention.ms", "config_operation": 0, "value": value}]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configs": configs}
        message = {"resources": [resource], "validate_only": False}
        api = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "responses"
        await self._try(self._config, value, partial(self._ask, runtime, api, message))

    async def _change_quota(self, runtime: SimRuntime, number: int) -> None:
        entity = [{"entity_type": "user", "entity_name": USER}]
        ops = [{"key": "consumer_byte_rate", "value": float(number), "remove": False}]
        message = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        api = ApiKey.ALTER_CLIENT_QUOTAS, 1, "entries"
        await self._try(self._quota, float(number), partial(self._ask, runtime, api, message))

    async def _change_topic(self, runtime: SimRuntime, number: int) -> None:
        """From its creation over more partitions to its deletion, as far as that is known."""
        name = f"administered-{number}"
        register = self._register(name, _Partitions(name))
        create = new_topic(name, TIMEOUT_MS)
        ask = partial(self._ask, runtime, (ApiKey.CREATE_TOPICS, 7, "topics"), create)
        known = await self._try(register, 1, ask)
        for partitions in range(2, PARTITIONS_MAX + 1):
            if not known:
                return
            more = {"name": name, "count": partitions, "assignments": None}
            message = {"topics": [more], "timeout_ms": TIMEOUT_MS, "validate_only": False}
            ask = partial(self._ask, runtime, (ApiKey.CREATE_PARTITIONS, 3, "results"), message)
            known = await self._try(register, partitions, ask)
        if known:
            message = {
                "topics": [{"name": name, "topic_id": None}],
                "timeout_ms": TIMEOUT_MS,
            }
            ask = partial(self._ask, runtime, (ApiKey.DELETE_TOPICS, 6, "responses"), message)
            await self._try(register, GONE, ask)

    async def _reassign(self, runtime: SimRuntime, number: int) -> None:
        """Two or three replicas in another order, none of it twice."""
        if number == 1:
            brokers = [node_id(name) for name in self.cluster.broker_names]
            self._targets = [*permutations(brokers), *permutations(brokers, 2)]
            runtime.random.shuffle(self._targets)
            target = self._targets.pop()
            assigned = [{"partition_index": 0, "broker_ids": list(target)}]
            topic = new_topic(REASSIGNED, TIMEOUT_MS)
            topic["topics"][0] |= {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": assigned,
            }
            ask = partial(self._ask, runtime, (ApiKey.CREATE_TOPICS, 7, "topics"), topic)
            self._was_created = await self._try(self._replicas, target, ask)
        elif self._was_created and self._targets:
            target = self._targets.pop()
            partitions = [{"partition_index": 0, "replicas": list(target)}]
            topics = [{"name": REASSIGNED, "partitions": partitions}]
            message = {"timeout_ms": TIMEOUT_MS, "topics": topics}
            api = ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, "responses"
            await self._try(self._replicas, target, partial(self._ask, runtime, api, message))

    async def _put_key(self, runtime: SimRuntime, number: int) -> None:
        value = b"%d" % number
        names = runtime.random.sample(self.cluster.controller_names, self.cluster.controllers)
        controllers = [f"{name}:{CONTROLLER_PORT}" for name in names]

        async def put() -> int:
            async with connect(controllers, rng=runtime.random) as client:
                try:
                    await client.put(KEY, value)
                except OutcomeUnknownError:
                    return ErrorCode.REQUEST_TIMED_OUT
                except KafkaError as error:
                    return error.code
            return ErrorCode.NONE

        await self._try(self._key, value, put)

    async def _try(self, register: Register, value: object, ask: Ask) -> bool:
        """Whether it is done; notes what the client was told."""
        register.ask(value)
        try:
            error = await ask()
        except NotSentError:
            error = ErrorCode.NOT_CONTROLLER
        except (OSError, TimeoutError, EOFError):
            error = ErrorCode.REQUEST_TIMED_OUT
        if error in UNKNOWN:
            register.lose()
        elif error:
            self.world.trace.add("-", "refused", f"{register.name} {value!r} {error}")
            register.refuse(value)
        else:
            register.done(value)
        return not error

    async def _ask(
        self, runtime: SimRuntime, api: tuple[ApiKey, int, str], message: dict[str, Any]
    ) -> int:
        """The error code of the only item, from a broker at random."""
        key, version, items = api
        name = runtime.random.choice(self.cluster.broker_names)
        try:
            async with asyncio.timeout(CONNECT_S):
                client = Client(*await asyncio.open_connection(name, BROKER_PORT))
        except (OSError, TimeoutError) as error:
            raise NotSentError from error
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await client.ask(key, version, message)
        finally:
            with contextlib.suppress(OSError):
                client.writer.close()
        if answer.get("error_code"):
            return int(answer["error_code"])
        item = answer[items][0]
        return int(
            item["partitions"][0]["error_code"] if "partitions" in item else item["error_code"]
        )


def _retention_ms(image: MetadataImage) -> object:
    return dict(image.config(TOPIC_RESOURCE, TOPIC)).get("retention.ms")


def _quota(image: MetadataImage) -> object:
    values = [value for entity, value in image.client_quotas.items() if USER in str(entity)]
    return dict(values[0])["consumer_byte_rate"] if values else None


def _key(image: MetadataImage) -> object:
    entry = image.kv.get(KEY)
    return None if entry is None else bytes(entry.value)


def _replicas(image: MetadataImage) -> object:
    """To which replicas the partition was assigned last, whether or not they are there yet."""
    topic = image.topics.by_name(REASSIGNED)
    if topic is None:
        return None
    partition = topic.partitions[0]
    return tuple(one for one in partition.replicas if one not in partition.removing_replicas)


class _Partitions:
    """How many partitions a topic has; None before it was there."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._was_there = False

    def __call__(self, image: MetadataImage) -> object:
        topic = image.topics.by_name(self._name)
        self._was_there = self._was_there or topic is not None
        return len(topic.partitions) if topic is not None else GONE if self._was_there else None
