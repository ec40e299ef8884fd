"""Random operations of brokers and administrators, failovers, and what must always hold."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from raftctl.controller import ControllerConfig
from raftctl.controller.partitions._availability import availability
from raftctl.errors import ErrorCode
from raftctl.metadata.codec import pack_payload, unpack_records
from raftctl.metadata.features import ELR_FEATURE, level_of
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, PartitionImage
from raftctl.metadata.records import NO_LEADER, TOPIC_RESOURCE, UNASSIGNED
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    UPGRADE,
    AdminResponse,
    AlterConfigsRequest,
    AlterOperation,
    AlterReassignmentsRequest,
    ConfigAlteration,
    ConfigChange,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FeatureUpdate,
    Reassignment,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    DirectoryAssignment,
    NewTopic,
)
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, SESSION_MS, Cluster

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b", "c"])
DISKS = st.sampled_from((2, 3))
"""The second directory of a broker may be replaced by another."""


def directory(broker_id: int, disk: int) -> UUID:
    return UUID(int=10 * (broker_id + 1) + disk)


def loaded(image: MetadataImage) -> MetadataImage:
    """What a replica has that reads the image from a snapshot."""
    records = list(image.records())
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in unpack_records(pack_payload(records), len(records)):
        delta.replay(record, image.offset)
    found = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    assert found == image
    return found


class ControllerMachine(RuleBasedStateMachine):
    """Random operations on an active controller, with commits and failovers in between."""

    slice_max = 1_000

    def __init__(self) -> None:
        super().__init__()
        self.cluster = self.new_cluster(
            ControllerConfig(
                cluster_id=CLUSTER_ID,
                session_timeout_ms=SESSION_MS,
                leader_rebalance=False,
                slice_examined_max=2 * self.slice_max,
                slice_changes_max=self.slice_max,
            )
        )
        self.leaders: dict[object, int] = {}
        """(topic id, partition id, leader epoch) to the broker epoch of who leads in it."""
        self.committed = EMPTY_IMAGE
        self.written = list(EMPTY_IMAGE.records())
        self.standby = EMPTY_IMAGE
        self.epochs: dict[object, tuple[tuple[int, int], tuple[int, ...]]] = {}
        """(topic id, partition id) to (leader epoch, partition epoch) and replicas."""
        self.incarnations = 0
        self.blocks: list[int] = []
        self.said: list[ErrorCode] = []
        """What the last assignment of a directory came to."""

    def new_cluster(self, config: ControllerConfig) -> Cluster:
        return Cluster(config)

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    @property
    def is_reconciling(self) -> bool:
        """Whether partitions have yet to follow who is active."""
        return self.cluster.controller.deadline_ms() == 0

    @rule(broker_id=BROKERS, again=st.booleans(), second=DISKS)
    def register(self, broker_id: int, again: bool, second: int) -> None:
        self.incarnations += not again
        directories = (directory(broker_id, 1), directory(broker_id, second))
        self.cluster.register(broker_id, self.incarnations, directories=directories)

    @rule(broker_id=BROKERS, name=NAMES, disk=st.sampled_from((0, 1, 2, 3)))
    def assign_directory(self, broker_id: int, name: str, disk: int) -> None:
        topic, broker = self.image.topics.by_name(name), self.image.brokers.get(broker_id)
        if topic is None or broker is None:
            return
        before = topic.partitions[0]
        where = directory(broker_id, disk) if disk else UNASSIGNED
        request = AssignReplicasToDirsRequest(
            broker_id, broker.broker_epoch, (DirectoryAssignment(topic.topic_id, 0, where),)
        )
        response = self.cluster.handle(request)
        assert isinstance(response, AssignReplicasToDirsResponse)
        self.said = [*response.results]
        after = self.cluster.partition(name)
        if response.results == (ErrorCode.NONE,):
            assert after.directory_of(broker_id) == where
        elif broker_id in before.replicas and broker_id not in after.replicas:
            assert before.removing_replicas
            assert response.results == (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
        else:
            assert after == before

    @rule(broker_id=BROKERS, disk=st.sampled_from((1, 2, 3)))
    def directory_fails(self, broker_id: int, disk: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is not None:
            failed = (directory(broker_id, disk),)
            offset, epoch = self.image.offset, broker.broker_epoch
            self.cluster.handle(
                BrokerHeartbeatRequest(broker_id, epoch, offset, False, False, failed)
            )
            assert failed[0] not in self.image.brokers[broker_id].log_directories

    @rule(
        broker_id=BROKERS,
        behind=st.sampled_from((0, 0, 0, 1, 5)),
        want_fence=st.sampled_from((False, False, False, True)),
        want_shut_down=st.sampled_from((False, False, False, True)),
    )
    def heartbeat(
        self, broker_id: int, behind: int, want_fence: bool, want_shut_down: bool
    ) -> None:
        if broker_id in self.image.brokers:
            self.cluster.heartbeat(
                broker_id,
                metadata_offset=self.image.offset - behind,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
            )

    @rule(broker_id=BROKERS)
    def restart(self, broker_id: int) -> None:
        """In a hurry: the next incarnation does not wait until the last is let go."""
        if broker_id in self.image.brokers:
            self.incarnations += 1
            self.cluster.heartbeat(broker_id, want_shut_down=True)
            self.cluster.register(broker_id, self.incarnations)
            self.cluster.heartbeat(broker_id)

    @rule(elapsed_ms=st.sampled_from((100, SESSION_MS // 2)))
    def wait(self, elapsed_ms: int) -> None:
        self.cluster.now_ms += elapsed_ms
        deadline_ms = self.cluster.controller.deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.cluster.now_ms:
            self.cluster.tick(self.cluster.now_ms)

    @rule()
    def wait_until_a_session_ends(self) -> None:
        deadline_ms = self.cluster.controller.deadline_ms()
        if deadline_ms is not None:
            self.cluster.tick(max(deadline_ms, self.cluster.now_ms))

    @rule(ticks=st.integers(1, 12))
    def go_on(self, ticks: int) -> None:
        for _ in range(ticks):
            if self.is_reconciling:
                self.cluster.late_tick(self.cluster.now_ms)

    @rule(name=NAMES, partitions=st.integers(1, 3), factor=st.integers(1, 4), dry=st.booleans())
    def create(self, name: str, partitions: int, factor: int, dry: bool) -> None:
        self.cluster.create(NewTopic(name, partitions, factor), validate_only=dry)

    @rule(
        name=NAMES,
        replicas=st.permutations((1, 2, 3, 4)),
        unclean=st.booleans(),
        min_isr=st.sampled_from((1, 2, 3)),
    )
    def assign(self, name: str, replicas: list[int], unclean: bool, min_isr: int) -> None:
        configs = (
            ("unclean.leader.election.enable", str(unclean)),
            ("min.insync.replicas", str(min_isr)),
        )
        assignments = ((0, tuple(replicas[:3])),)
        self.cluster.create(NewTopic(name, assignments=assignments, configs=configs))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.cluster.delete((name, None))

    @rule(name=NAMES, isr=st.lists(BROKERS, max_size=4), stale=st.sampled_from((0, 0, 0, 1)))
    def alter(self, name: str, isr: list[int], stale: int) -> None:
        topic = self.image.topics.by_name(name)
        if topic is None or topic.partitions[0].leader not in self.image.brokers:
            return
        before = topic.partitions[0]
        (result,) = self.cluster.alter(before.leader, self.cluster.item(name, *isr))
        after = self.cluster.partition(name)
        if result.error == ErrorCode.NONE:
            gone = set(before.removing_replicas) - set(after.removing_replicas)
            assert after.isr == tuple(one for one in isr if one not in gone)
        elif result.error == ErrorCode.NEW_LEADER_ELECTED:
            assert not after.adding_replicas
            assert before.leader not in after.replicas
        else:
            assert after == before

    @rule(name=NAMES, replicas=st.lists(st.integers(1, 5), min_size=0, max_size=4))
    def reassign(self, name: str, replicas: list[int]) -> None:
        """No replicas: cancel."""
        topic = self.image.topics.by_name(name)
        before = self.image
        wanted = Reassignment(name, 0, tuple(replicas) or None)
        (outcome,) = self.cluster.admin(AlterReassignmentsRequest((wanted,)))
        if outcome.error != ErrorCode.NONE or topic is None:
            assert self.image is before
            return
        after = self.cluster.partition(name)
        target = after.replicas[: len(after.replicas) - len(after.removing_replicas)]
        assert not replicas or target == tuple(replicas)

    @rule(name=NAMES, election_type=st.sampled_from((0, 1)), everywhere=st.booleans())
    def elect(self, name: str, election_type: int, everywhere: bool) -> None:
        before = self.image
        everything = ((one.name, n) for one in before.topics.in_order() for n in one.partitions)
        partitions = tuple(everything) if everywhere else ((name, 0), (name, 2))
        response = self.cluster.handle(ElectLeadersRequest(election_type, partitions))
        assert isinstance(response, ElectLeadersResponse)
        for result in response.results:
            topic, old = (image.topics.by_name(result.topic) for image in (self.image, before))
            if result.error == ErrorCode.NONE and topic is not None and old is not None:
                now, then = (one.partitions[result.partition_id] for one in (topic, old))
                assert now.leader != NO_LEADER
                assert now.leader_epoch == then.leader_epoch + 1
                assert election_type == 1 or now.leader == now.replicas[0]

    @rule(broker_id=BROKERS, unlikely=st.sampled_from((True, False, False, False)))
    def unregister(self, broker_id: int, unlikely: bool) -> None:
        if unlikely:
            self.cluster.handle(UnregisterBrokerRequest(broker_id))
            assert broker_id not in self.image.brokers

    @rule(level=st.sampled_from((0, 1)))
    def update_features(self, level: int) -> None:
        kind = SAFE_DOWNGRADE if level < level_of(self.image, ELR_FEATURE) else UPGRADE
        response = self.cluster.handle(
            UpdateFeaturesRequest((FeatureUpdate(ELR_FEATURE, level, kind),))
        )
        assert isinstance(response, AdminResponse)
        assert response.error == ErrorCode.NONE

    @rule(name=NAMES, min_isr=st.sampled_from(("1", "2", "3")), unclean=st.booleans())
    def configure(self, name: str, min_isr: str, unclean: bool) -> None:
        changes = (
            ConfigChange("min.insync.replicas", AlterOperation.SET, min_isr),
            ConfigChange("unclean.leader.election.enable", AlterOperation.SET, str(unclean)),
        )
        alteration = ConfigAlteration(TOPIC_RESOURCE, name, changes)
        # While partitions follow the last change of the minimum, another must be tried again.
        may_wait = self.is_reconciling and level_of(self.image, ELR_FEATURE) > 0
        (outcome,) = self.cluster.admin(AlterConfigsRequest((alteration,)))
        if name not in self.image.topics.ids:
            assert outcome.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not (may_wait and outcome.error == ErrorCode.REQUEST_TIMED_OUT):
            assert outcome.error == ErrorCode.NONE

    @rule(broker_id=BROKERS)
    def allocate(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            epoch = self.image.brokers[broker_id].broker_epoch
            response = self.cluster.handle(AllocateProducerIdsRequest(broker_id, epoch))
            assert isinstance(response, AllocateProducerIdsResponse)
            self.blocks.append(response.first)

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        """Commits some of the log; a standby replays the records of it one by one."""
        behind = self.cluster.image.offset - self.committed.offset
        offset = self.committed.offset + int(share * behind)
        for delta, image in self.cluster.controller.committed(offset):
            assert delta.image is self.committed
            self.committed = image
        self.written = list(self.committed.records())
        for at in range(self.standby.offset + 1, self.committed.offset + 1):
            delta = MetadataDelta(self.standby)
            delta.replay(self.cluster.records[at], at)
            self.standby = delta.apply(at, self.committed.epoch, self.committed.timestamp_ms)

    @precondition(lambda self: self.committed.offset > 0)
    @rule(from_snapshot=st.booleans())
    def fail_over(self, from_snapshot: bool) -> None:
        """Loses what is not committed, in memory and in the log."""
        self.cluster.controller.renounce()
        assert self.cluster.image is self.committed
        if from_snapshot:
            self.committed = loaded(self.committed)
        del self.cluster.records[self.committed.offset + 1 :]
        self.epochs = {}
        self.leaders = {}
        self.blocks = [first for first in self.blocks if first < self.image.next_producer_id]
        self.cluster.claim(self.committed)

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def what_is_committed_never_changes(self) -> None:
        assert self.cluster.controller.committed_image is self.committed
        assert list(self.committed.records()) == self.written

    @invariant()
    def the_controller_is_sound(self) -> None:
        self.cluster.controller.invariants()

    @invariant()
    def the_standby_agrees(self) -> None:
        assert list(self.standby.records()) == self.written

    @invariant()
    def partitions_are_sound(self) -> None:
        for topic in self.image.topics.in_order():
            for partition_id, partition in topic.items():
                self._check(partition)
                self._check_epochs((topic.topic_id, partition_id), partition)

    def _check(self, partition: PartitionImage) -> None:
        online = availability(self.image).replicas_of(partition)
        assert len(partition.directories) in (0, len(partition.replicas))
        whole = partition.isr + partition.elr
        assert whole
        assert len(set(whole)) == len(whole)
        assert set(whole) <= set(partition.replicas)
        assert set(partition.adding_replicas) <= set(partition.replicas)
        assert (
            partition.removing_replicas
            == (partition.replicas[len(partition.replicas) - len(partition.removing_replicas) :])
        )
        if partition.adding_replicas:
            assert not set(partition.adding_replicas) <= set(partition.isr)
        if partition.leader == NO_LEADER:
            assert self.is_reconciling or online.isdisjoint(whole)
            return
        assert partition.leader in partition.isr
        assert self.is_reconciling or online.issuperset(partition.isr)
        if partition.leader_recovering:
            assert partition.isr == (partition.leader,)

    def _check_epochs(self, key: object, partition: PartitionImage) -> None:
        now = (partition.leader_epoch, partition.partition_epoch)
        before, replicas = self.epochs.get(key, (now, partition.replicas))
        assert now[0] >= before[0]
        assert now[1] >= before[1]
        if not set(replicas) <= set(partition.replicas):
            assert now[0] > before[0], "a replica that is gone is no follower in the next epoch"
        self.epochs[key] = now, partition.replicas
        leader = self.image.brokers.get(partition.leader)
        if leader is not None:
            # A newer incarnation may lack what the last one had not flushed.
            led = self.leaders.setdefault((key, partition.leader_epoch), leader.broker_epoch)
            assert leader.broker_epoch == led

    @invariant()
    def brokers_are_sound(self) -> None:
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            assert 0 <= broker.broker_epoch <= self.image.offset

    @invariant()
    def somebody_watches_every_broker_that_is_not_fenced(self) -> None:
        if not all(one.fenced for one in self.image.brokers.values()):
            assert self.cluster.controller.deadline_ms() is not None

    @invariant()
    def producer_ids_are_unique(self) -> None:
        assert len(set(self.blocks)) == len(self.blocks)


class SlowControllerMachine(ControllerMachine):
    """The same where what follows from a broker's change takes many slices."""

    slice_max = 1

    def __init__(self) -> None:
        super().__init__()
        self.cluster.start(1, 2, 3, 4)
        for name, replicas in (("a", (1, 2)), ("b", (2, 3, 1))):
            self.cluster.assign(name, *[replicas] * 4)
