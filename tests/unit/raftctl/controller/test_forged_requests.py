"""Requests of the right shape with wrong contents: an error at most, never the controller's end.

Whoever reaches a controller may be older, newer, broken or a forger. What it sends has the types of
its class, since the codec sees to that, and nothing else can be relied on.
"""

from __future__ import annotations

import dataclasses
import enum
import random
import types
import typing
from typing import Any
from uuid import UUID

import pytest

from raftctl.codec import UNPACK_BYTES_MAX
from raftctl.controller import ControllerConfig
from raftctl.errors import KafkaError
from raftctl.metadata.codec import pack_payload, unpack_records
from raftctl.metadata.features import supported_ranges
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.requests import ControllerRequest
from raftctl.metadata.requests.cluster import RegisterControllerRequest
from raftctl.metadata.requests.kv import KvLockRequest, KvOpenSessionRequest, KvPutRequest
from raftctl.rpc.codec import RPC_CODEC
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, SESSION_MS, Cluster, incarnation

REQUESTS = typing.get_args(ControllerRequest)
ROUNDS = 250
WRITTEN_MIN = 8
"""Classes of requests of which one was taken, whatever the seed."""
LONG = 2**63 - 1
INTS = (-(2**63), -(2**31), -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 32, 101, 2**31 - 1, 2**31, LONG)
TEXTS = (
    "",
    "t",
    "u",
    ".",
    "..",
    "a.b",
    "__cluster_metadata",
    "x" * 300,
    "x" * 40_000,
    "\x00",
    "ä\n",
    "{}",
    "%s",
    CLUSTER_ID,
    "metadata.version",
    "min.insync.replicas",
    "retention.ms",
    "cleanup.policy",
    "compact,delete",
    "leader.replication.throttled.replicas",
    "0:1",
    "nan",
    "-1",
    "9" * 400,
    "user",
    "client-id",
    "ip",
    "producer_byte_rate",
    "User:alice",
    "PLAINTEXT",
    "key",
    "lock",
)
FLOATS = (float("nan"), float("inf"), -float("inf"), -1.0, -0.0, 0.0, 0.5, 1e308, 5e-324)
BYTES = (b"", b"\x00", b"1", b"x" * 5_000, b"x" * (1024 * 1024 + 1))
SESSION = UUID(int=77)
FITS = 0.7
"""How often a field holds what it may well hold."""


def cluster_with_state() -> Cluster:
    """Brokers, topics that move, keys, a session with a lock, a controller."""
    config = ControllerConfig(
        cluster_id=CLUSTER_ID, session_timeout_ms=SESSION_MS, request_partitions_max=100
    )
    cluster = Cluster(config)
    cluster.start(1, 2, 3)
    cluster.register(4, directories=(UUID(int=41), UUID(int=42)))
    cluster.assign("t", (1, 2, 3), (2, 3, 1))
    cluster.assign("u", (3, 4))
    cluster.handle(KvPutRequest("key", b"1"))
    cluster.handle(KvOpenSessionRequest(SESSION, 10_000))
    cluster.handle(KvLockRequest("lock", SESSION, b""))
    cluster.handle(RegisterControllerRequest(101, UUID(int=101), CLUSTER_ID, supported_ranges()))
    return cluster


USUAL: dict[str, tuple[Any, ...]] = {
    "broker_id": (1, 2, 3, 4),
    "cluster_id": (CLUSTER_ID,),
    "partition_id": (0, 1),
    "resource_type": (2, 4, 32),
    "session_id": (SESSION,),
    "lock": ("lock",),
    "operation": (0, 1, 2, 3),
    "permission_type": (2, 3),
    "pattern_type": (3, 4),
    "upgrade_type": (1, 2, 3),
    "election_type": (0, 1),
    "timeout_ms": (2_000,),
    "feature": tuple(one.name for one in supported_ranges()),
    "level": (0, 1, 2, 3, 4, 5, 6, 7),
    "lowest": (0, 1),
    "highest": (1, 6),
    "validate_only": (False,),
    "mechanism": (1, 2),
    "iterations": (4096, 16_384),
    "entity": ((("user", "t"),), (("client-id", None), ("user", "t"))),
    "count": (1, 2, 5),
    "requester": (("User:alice", "10.0.0.7"),),
}


class Forger:
    """Makes requests of what a cluster has and of what nobody expects."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = cluster

    def make(self, hint: Any, depth: int = 0) -> Any:
        """A value of this type."""
        rng = self.rng
        while isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        origin, choices = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            others = [one for one in choices if one is not types.NoneType]
            return None if rng.random() < 0.25 else self.make(rng.choice(others), depth)
        if origin is tuple and choices[1:] == (Ellipsis,):
            return self._many(choices[0], depth)
        if origin is tuple:
            return tuple(self.make(one, depth) for one in choices)
        if dataclasses.is_dataclass(hint):
            return self._object(hint, depth)
        return self._plain(hint)

    def _object(self, hint: Any, depth: int) -> Any:
        hints = typing.get_type_hints(hint)
        made = {}
        for one in dataclasses.fields(hint):
            fits = self._fitting(one.name) if self.rng.random() < FITS else None
            made[one.name] = self.make(hints[one.name], depth + 1) if fits is None else fits
        broker = self.cluster.image.brokers.get(made.get("broker_id", -1))
        if "broker_epoch" in made and broker is not None and self.rng.random() < FITS:
            made["broker_epoch"] = broker.broker_epoch
        return hint(**made)

    def _fitting(self, field: str) -> Any:
        """What a field may well hold, so that not all is refused at the first look; or None."""
        rng = self.rng
        topics = [*self.cluster.image.topics.in_order()]
        if topics and field in ("topic_id", "topic", "name", "resource_name"):
            topic = rng.choice(topics)
            return topic.topic_id if field == "topic_id" else topic.name
        if topics and field in ("leader_epoch", "partition_epoch"):
            return getattr(rng.choice(topics).partitions[0], field)
        if field in ("replicas", "new_isr"):
            brokers = [rng.randint(1, 4) for _ in range(rng.randint(0, 3))]
            return tuple((one, -1) for one in brokers) if field == "new_isr" else tuple(brokers)
        usual = USUAL.get(field)
        return None if usual is None else rng.choice(usual)

    def _many(self, hint: Any, depth: int) -> tuple[Any, ...]:
        rng = self.rng
        made = [self.make(hint, depth) for _ in range(rng.choice((0, 1, 1, 2, 3, 8)))]
        if made and rng.random() < 0.2:
            made.append(rng.choice(made))
        if made and rng.random() < 0.01:
            made *= 60
        return tuple(made)

    def _plain(self, hint: Any) -> Any:
        rng, image = self.rng, self.cluster.image
        if hint is bool:
            return rng.random() < 0.5
        if hint is int:
            epochs = [one.broker_epoch for one in image.brokers.values()]
            return rng.choice((*INTS, *epochs, image.offset, image.offset + 1))
        if hint is float:
            return rng.choice(FLOATS)
        if hint is str:
            return rng.choice(TEXTS)
        if hint is bytes:
            return rng.choice(BYTES)
        if hint is UUID:
            known = [*image.topics.topics, SESSION, UUID(int=41), UUID(int=0)]
            made = [UUID(int=rng.getrandbits(128)), incarnation(rng.randint(1, 4))]
            return rng.choice([*known, *made])
        assert isinstance(hint, type)
        assert issubclass(hint, enum.IntEnum)
        return rng.choice(list(hint))


def check_whole(cluster: Cluster) -> None:
    """A replica that reads the image from a snapshot has the same."""
    image = cluster.image
    records = list(image.records())
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in unpack_records(pack_payload(records), len(records)):
        delta.replay(record, image.offset)
    assert delta.apply(image.offset, image.epoch, image.timestamp_ms) == image
    for topic in image.topics.in_order():
        for partition in topic.partitions.values():
            whole = partition.isr + partition.elr
            assert whole
            assert set(whole) <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert partition.leader == -1 or partition.leader in partition.isr


def put(cluster: Cluster, forged: Any) -> bool:
    """Has the controller handle what has come over the wire; tells whether it wrote anything."""
    before = cluster.image
    packed = RPC_CODEC.pack(forged)
    if len(packed) > UNPACK_BYTES_MAX:
        return False  # no frame is so large
    request = RPC_CODEC.unpack(packed)
    try:
        result = cluster.controller.handle(request, cluster.now_ms)
    except KafkaError:
        assert cluster.image is before
        return False
    payload = pack_payload(result.records)
    assert unpack_records(payload, len(result.records)) == list(result.records)
    RPC_CODEC.pack(result.response_at(cluster.append(result.records)))
    assert result.records or cluster.image is before
    return bool(result.records)


@pytest.mark.req("C1", "Q12")
@pytest.mark.parametrize("request_class", REQUESTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_forged_request_gets_an_error_at_most(request_class: type, seed: int) -> None:
    cluster = cluster_with_state()
    forger = Forger(cluster, seed)
    for _ in range(ROUNDS):
        put(cluster, forger.make(request_class))
    cluster.tick(cluster.now_ms + 100)
    check_whole(cluster)
    cluster.controller.renounce()
    assert cluster.controller.committed_image == EMPTY_IMAGE


@pytest.mark.req("C1", "Q12")
@pytest.mark.parametrize("seed", range(4))
def test_forged_requests_of_all_kinds_leave_a_state_that_is_whole(seed: int) -> None:
    cluster = cluster_with_state()
    forger = Forger(cluster, seed)
    wrote: set[type] = set()
    for number in range(8 * ROUNDS):
        request = forger.make(forger.rng.choice(REQUESTS))
        if put(cluster, request):
            wrote.add(type(request))
        if number % 10 == 0:
            cluster.tick(cluster.now_ms + forger.rng.choice((1, 50, 300)))
    check_whole(cluster)
    assert len(wrote) >= WRITTEN_MIN, "most are refused, but not all"
