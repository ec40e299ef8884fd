"""Random valid and invalid requests beside those of `ControllerMachine`, judged by the model.

With commits, failovers and snapshots in between: what is committed never changes, the standby that
replays the log and a replica that loads a snapshot have the same image, and what was not committed
when the controller lost its leadership has never been.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from raftctl.errors import KafkaError
from raftctl.metadata.features import (
    ELR_FEATURE,
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
    directories_enabled,
    level_of,
)
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.records import FeatureRange
from raftctl.metadata.requests import admin, kv
from raftctl.metadata.requests import cluster as requests
from raftctl.metadata.requests import security as security
from tests.kit.deltas import delta_between
from tests.properties import values
from tests.properties.judge import JudgedCluster
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, ENDPOINTS
from tests.unit.raftctl.controller.machine import BROKERS, ControllerMachine, directory, loaded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from raftctl.controller import ControllerConfig
    from raftctl.metadata.records import Endpoint
    from raftctl.metadata.requests import ControllerRequest

TOPICS = st.sampled_from(("a", "b", "c", "x.y", "x_y"))
BAD_NAMES = st.sampled_from(("", ".", "..", "n" * 250, "with space", "größe"))
NAMES = st.one_of(TOPICS, TOPICS, TOPICS, BAD_NAMES)
BROKER_IDS = st.integers(0, 5)
"""There are 1 to 4."""
REPLICAS = st.lists(BROKER_IDS, max_size=4).map(tuple)
GOOD_REPLICAS = st.permutations((1, 2, 3, 4)).flatmap(
    lambda order: st.integers(1, 4).map(lambda count: tuple(order[:count]))
)
SOME_REPLICAS = st.one_of(GOOD_REPLICAS, GOOD_REPLICAS, REPLICAS)
COUNTS = st.sampled_from((1, 2, 3, -1, 1, 2, 0, -2, 10_001))
USERS = st.sampled_from(("u", "v", ""))


def pairs(
    known: Mapping[str, tuple[Sequence[str | None], Sequence[str | None]]],
) -> st.SearchStrategy[tuple[str, str | None]]:
    """A key and a value, more often a good one."""
    good = [(key, value) for key in known for value in known[key][0]]
    bad = [(key, value) for key in known for value in known[key][1]]
    return st.one_of(st.sampled_from(good), st.sampled_from(good), st.sampled_from(bad))


TOPIC_PAIRS = pairs(values.TOPIC_VALUES)


@st.composite
def new_topics(draw: st.DrawFn) -> requests.NewTopic:
    configs = dict(draw(st.lists(TOPIC_PAIRS, max_size=2)))
    topic = requests.NewTopic(draw(NAMES), configs=tuple(configs.items()))
    if draw(st.booleans()):
        factor = draw(st.sampled_from((1, 2, 3, -1, 4, 5, 0, -2)))
        return replace(topic, partitions=draw(COUNTS), replication_factor=factor)
    lists = draw(st.lists(SOME_REPLICAS, min_size=1, max_size=2))
    ids = draw(st.sampled_from(((0, 1), (1, 0), (0, 2))))
    assignments = tuple(zip(ids, lists, strict=False))
    return replace(
        topic, assignments=assignments, partitions=draw(st.sampled_from((-1, -1, -1, 2)))
    )


@st.composite
def config_changes(draw: st.DrawFn, kind: int) -> admin.ConfigChange:
    known = values.VALUES.get(kind, values.GROUP_VALUES)
    key, value = draw(pairs(known))
    if draw(st.integers(0, 9)) == 0:
        key = draw(st.sampled_from(("", *values.STATIC_BROKER_KEYS)))
    if draw(st.integers(0, 4)) == 0:
        given = draw(st.sampled_from(("compact", "delete")))
        return admin.ConfigChange("cleanup.policy", draw(st.sampled_from((2, 3))), given)
    return admin.ConfigChange(key, draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3, 4))), value)


OWNERS = st.one_of(
    st.tuples(st.just(2), TOPICS),
    st.tuples(st.just(4), st.sampled_from(("", "1", "2", "9", "one"))),
    st.tuples(st.just(32), st.sampled_from(("g", ""))),
    st.sampled_from(((3, "x"), (8, "1"))),
)


@st.composite
def alterations(draw: st.DrawFn) -> admin.ConfigAlteration:
    owner = draw(OWNERS)
    changes = draw(st.lists(config_changes(owner[0]), max_size=3))
    whole = draw(st.integers(0, 4)) == 0
    if whole:
        changes = [replace(one, operation=0) for one in changes]
    return admin.ConfigAlteration(*owner, tuple(changes), whole)


ENTITIES = st.sampled_from(
    (
        (("user", "u"),),
        (("user", None),),
        (("user", "u"), ("client-id", "c")),
        (("client-id", None), ("user", "v")),
        (("ip", "10.0.0.1"),),
        (("ip", "nowhere"),),
        (("user", "u"), ("user", "v")),
        (("user", ""),),
        (("host", "h"),),
        (),
    )
)
QUOTAS = st.tuples(
    st.sampled_from((*values.CLIENT_QUOTAS, "connection_creation_rate", "no_such_quota")),
    st.sampled_from((None, None, 1.0, 1000.0, 1.5, 0.0, -1.0, float("nan"), float("inf"))),
)
QUOTA_ENTRIES = st.builds(
    security.QuotaAlteration, ENTITIES, st.lists(QUOTAS, max_size=2).map(tuple)
)
RULES = st.builds(
    security.AclBinding,
    st.sampled_from((2, 2, 3, 4, 1)),
    st.sampled_from(("t", "*", "kafka-cluster", "")),
    st.sampled_from((3, 3, 4, 1)),
    st.sampled_from(("User:u", "User:v", "u")),
    st.sampled_from(("*", "*", "")),
    st.sampled_from((2, 3, 1)),
    st.sampled_from((2, 3, 0)),
)
FILTERS = st.builds(
    security.AclFilter,
    st.sampled_from((1, 2, 3)),
    st.sampled_from((None, None, "t")),
    st.sampled_from((1, 1, 3, 0)),
    st.sampled_from((None, "User:u")),
    st.none(),
    st.sampled_from((1, 2)),
    st.sampled_from((1, 1, 3)),
)
DELETIONS = st.builds(security.ScramDeletion, USERS, st.sampled_from((1, 2, 3)))
UPSERTIONS = st.builds(
    security.ScramUpsertion,
    USERS,
    st.sampled_from((1, 1, 2, 3)),
    st.sampled_from((4096, 8192, 4095, 16385)),
    st.sampled_from((b"salt", b"salt", b"")),
    st.sampled_from((b"x" * 32, b"x" * 32, b"x" * 64)),
)
UPDATES = st.builds(
    admin.FeatureUpdate,
    st.sampled_from(
        (ELR_FEATURE, METADATA_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE, "no.such.feature")
    ),
    st.integers(-1, METADATA_VERSION + 1),
    st.sampled_from((1, 1, 2, 3, 0)),
)
_TRANSACTIONS = FeatureRange(TRANSACTION_VERSION_FEATURE, 0, 2)
RANGES = st.sampled_from(
    (
        (),
        (),
        (
            FeatureRange(ELR_FEATURE, 0, 1),
            FeatureRange(METADATA_VERSION_FEATURE, 1, 9),
            _TRANSACTIONS,
        ),
        (FeatureRange(METADATA_VERSION_FEATURE, 1, METADATA_VERSION), _TRANSACTIONS),
        (FeatureRange(METADATA_VERSION_FEATURE, 1, METADATA_VERSION - 1), _TRANSACTIONS),
    )
)
KEYS = st.sampled_from(("k", "l", "", "m" * 1025))


class ModelMachine(ControllerMachine):
    """The controller and the model do the same."""

    cluster: JudgedCluster

    def __init__(self) -> None:
        super().__init__()
        self.known = EMPTY_IMAGE
        """Of a replica that hears of nothing but snapshots."""
        self.cluster.start(1, 2, 3)

    def new_cluster(self, config: ControllerConfig) -> JudgedCluster:
        return JudgedCluster(config)

    def ask(self, request: ControllerRequest) -> None:
        """The model judges the answer; also one that is an error for all."""
        with contextlib.suppress(KafkaError):
            self.cluster.handle(request)

    # --- brokers ------------------------------------------------------------------------------

    @rule(
        broker_id=st.sampled_from((1, 2, 3, 4, -1)),
        again=st.booleans(),
        cluster_id=st.sampled_from((CLUSTER_ID, CLUSTER_ID, CLUSTER_ID, "another")),
        listeners=st.sampled_from((ENDPOINTS, ENDPOINTS, (), ENDPOINTS * 2)),
        directories_of=st.sampled_from((None, None, 1)),
        features=RANGES,
        clean=st.booleans(),
    )
    def introduce(
        self,
        broker_id: int,
        again: bool,
        cluster_id: str,
        listeners: tuple[Endpoint, ...],
        directories_of: int | None,
        features: tuple[FeatureRange, ...],
        clean: bool,
    ) -> None:
        self.incarnations += not again
        broker = self.image.brokers.get(broker_id)
        owner = broker_id if directories_of is None else directories_of
        self.cluster.register(
            broker_id,
            self.incarnations,
            cluster_id=cluster_id,
            endpoints=listeners,
            directories=(directory(owner, 1),),
            features=features,
            previous_epoch=broker.broker_epoch if broker is not None and clean else -1,
        )

    @rule(broker_id=BROKER_IDS, age=st.sampled_from((1, -1)))
    def speak_of_another_epoch(self, broker_id: int, age: int) -> None:
        broker = self.image.brokers.get(broker_id)
        epoch = age + (0 if broker is None else broker.broker_epoch)
        offset = self.image.offset
        self.ask(requests.BrokerHeartbeatRequest(broker_id, epoch, offset, False, True))
        self.ask(requests.AllocateProducerIdsRequest(broker_id, epoch))
        self.ask(requests.AlterPartitionRequest(broker_id, epoch, ()))

    @rule(broker_id=BROKER_IDS, unlikely=st.integers(0, 9))
    def forget(self, broker_id: int, unlikely: int) -> None:
        if unlikely == 0:
            self.ask(admin.UnregisterBrokerRequest(broker_id))

    @rule(broker_id=BROKERS, disk=st.sampled_from((1, 2, 3)))
    def directory_fails(self, broker_id: int, disk: int) -> None:
        if directories_enabled(self.image):
            super().directory_fails(broker_id, disk)

    # --- topics -------------------------------------------------------------------------------

    @rule(topics=st.lists(new_topics(), max_size=3), dry=st.sampled_from((False, False, True)))
    def create_several(self, topics: list[requests.NewTopic], dry: bool) -> None:
        self.ask(requests.CreateTopicsRequest(tuple(topics), dry))

    @rule(names=st.lists(TOPICS, max_size=2), by_id=st.booleans(), both=st.integers(0, 5))
    def delete_several(self, names: list[str], by_id: bool, both: int) -> None:
        asked: list[tuple[str | None, UUID | None]] = []
        for name in names:
            topic = self.image.topics.by_name(name)
            topic_id = UUID(int=5) if topic is None else topic.topic_id
            asked.append((None, topic_id) if by_id else (name, None))
            if both == 0:
                asked[-1] = (name, topic_id) if by_id else (None, None)
        self.ask(requests.DeleteTopicsRequest(tuple(asked)))

    @rule(
        names=st.lists(TOPICS, max_size=2),
        count=st.sampled_from((1, 2, 3, 4, 0, -1, 10_005)),
        lists=st.one_of(st.none(), st.lists(SOME_REPLICAS, max_size=2).map(tuple)),
        dry=st.sampled_from((False, False, True)),
    )
    def add_partitions(
        self, names: list[str], count: int, lists: tuple[tuple[int, ...], ...] | None, dry: bool
    ) -> None:
        topics = tuple(admin.NewPartitions(name, count, lists) for name in names)
        self.ask(admin.CreatePartitionsRequest(topics, dry))

    @rule(
        wanted=st.lists(
            st.builds(
                admin.Reassignment,
                TOPICS,
                st.integers(-1, 2),
                st.one_of(st.none(), SOME_REPLICAS),
            ),
            max_size=3,
        ),
        any_factor=st.booleans(),
    )
    def reassign_several(self, wanted: list[admin.Reassignment], any_factor: bool) -> None:
        self.ask(admin.AlterReassignmentsRequest(tuple(wanted), any_factor))

    @rule(
        name=TOPICS,
        partition_id=st.integers(0, 2),
        election_type=st.sampled_from((0, 1)),
    )
    def elect_one(self, name: str, partition_id: int, election_type: int) -> None:
        self.ask(admin.ElectLeadersRequest(election_type, ((name, partition_id),)))

    @rule(
        name=TOPICS,
        partition_id=st.integers(0, 1),
        isr=st.lists(BROKERS, max_size=3),
        leader_epoch=st.sampled_from((0, 0, 0, -1, 1)),
        partition_epoch=st.sampled_from((0, 0, 0, -1, 1)),
        member_epoch=st.sampled_from((0, 0, 0, -1)),
        recovering=st.sampled_from((False, False, True)),
        other_sender=st.sampled_from((False, False, False, True)),
    )
    def propose(
        self,
        name: str,
        partition_id: int,
        isr: list[int],
        leader_epoch: int,
        partition_epoch: int,
        member_epoch: int,
        recovering: bool,
        other_sender: bool,
    ) -> None:
        topic = self.image.topics.by_name(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        sender = 1 if partition is None or other_sender else partition.leader
        if sender not in self.image.brokers:
            return
        item = requests.AlterPartitionItem(UUID(int=5), partition_id, 0, 0, ())
        if topic is not None and partition is not None:
            whole = self.cluster.item(name, *isr, partition_id=partition_id)
            item = replace(
                whole,
                leader_epoch=whole.leader_epoch + leader_epoch,
                partition_epoch=whole.partition_epoch + partition_epoch,
                new_isr=tuple((one, max(-1, epoch + member_epoch)) for one, epoch in whole.new_isr),
                leader_recovering=recovering,
            )
        epoch = self.image.brokers[sender].broker_epoch
        self.ask(requests.AlterPartitionRequest(sender, epoch, (item,)))

    # --- configs, security, features, keys ------------------------------------------------------

    @rule(resources=st.lists(alterations(), max_size=3), dry=st.sampled_from((False, False, True)))
    def configure_several(self, resources: list[admin.ConfigAlteration], dry: bool) -> None:
        self.ask(admin.AlterConfigsRequest(tuple(resources), dry))

    @rule(entries=st.lists(QUOTA_ENTRIES, max_size=3), dry=st.sampled_from((False, False, True)))
    def alter_quotas(self, entries: list[security.QuotaAlteration], dry: bool) -> None:
        self.ask(security.AlterClientQuotasRequest(tuple(entries), dry))

    @rule(rules=st.lists(RULES, max_size=3))
    def create_rules(self, rules: list[security.AclBinding]) -> None:
        self.ask(security.CreateAclsRequest(tuple(rules)))

    @rule(filters=st.lists(FILTERS, max_size=2))
    def delete_rules(self, filters: list[security.AclFilter]) -> None:
        self.ask(security.DeleteAclsRequest(tuple(filters)))

    @rule(
        deletions=st.lists(DELETIONS, max_size=2),
        upsertions=st.lists(UPSERTIONS, max_size=2),
    )
    def alter_credentials(
        self,
        deletions: list[security.ScramDeletion],
        upsertions: list[security.ScramUpsertion],
    ) -> None:
        self.ask(security.AlterScramRequest(tuple(deletions), tuple(upsertions)))

    @rule(updates=st.lists(UPDATES, max_size=2), dry=st.sampled_from((False, False, True)))
    def update_several_features(self, updates: list[admin.FeatureUpdate], dry: bool) -> None:
        self.ask(admin.UpdateFeaturesRequest(tuple(updates), dry))

    @rule(level=st.sampled_from((0, 1)))
    def update_features(self, level: int) -> None:
        kind = admin.SAFE_DOWNGRADE if level < level_of(self.image, ELR_FEATURE) else admin.UPGRADE
        self.ask(admin.UpdateFeaturesRequest((admin.FeatureUpdate(ELR_FEATURE, level, kind),)))

    @rule(key=KEYS, value=st.binary(max_size=2))
    def put(self, key: str, value: bytes) -> None:
        self.ask(kv.KvPutRequest(key, value))

    @rule(key=KEYS)
    def delete_key(self, key: str) -> None:
        self.ask(kv.KvDeleteRequest(key))
        self.ask(kv.KvGetRequest(key))

    # --- other replicas -----------------------------------------------------------------------

    @rule()
    def send_a_snapshot(self) -> None:
        """To a replica that has been away: what it makes of it is published as a change."""
        new = loaded(self.committed)
        if new.offset > self.known.offset:
            delta = delta_between(self.known, new)
            assert delta.apply(new.offset, new.epoch, new.timestamp_ms) == new
            self.known = new

    @precondition(lambda self: self.committed.offset > 0)
    @rule(from_snapshot=st.booleans())
    def fail_over(self, from_snapshot: bool) -> None:
        offset = self.committed.offset
        super().fail_over(from_snapshot)
        self.cluster.roll_back(offset)

    @invariant()
    def the_model_agrees(self) -> None:
        """Also after what time and failovers bring about."""
        self.cluster.model.agrees(self.image)

    @invariant()
    def a_snapshot_of_the_newest_state_gives_it_back(self) -> None:
        loaded(self.image)


class SlowModelMachine(ModelMachine):
    """The same where what follows from a broker's change takes many slices."""

    slice_max = 1

    def __init__(self) -> None:
        super().__init__()
        self.cluster.start(4)
        for name, replicas in (("a", (1, 2)), ("b", (2, 3, 1))):
            self.cluster.assign(name, *[replicas] * 4)
