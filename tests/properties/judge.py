"""A cluster whose every answer is compared with the model's, and whose state is as the model says.

What is refused changes nothing: the model does nothing then, and the two are compared after each
request.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from raftctl.controller.partitions._availability import active_brokers, availability
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import NO_LEADER
from raftctl.metadata.requests import admin, kv
from raftctl.metadata.requests import cluster as requests
from raftctl.metadata.requests import security as security
from tests.properties import values
from tests.properties.model import Model, TopicModel
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.controller import ControllerConfig
    from raftctl.metadata.image import MetadataImage, PartitionImage
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from tests.properties.model import Errors

PRODUCER_IDS = 1_000


def compare(error: ErrorCode, wrong: Errors, what: object) -> bool:
    """The error is one of those that it may be; tells whether there is none."""
    assert error in (wrong or {ErrorCode.NONE}), f"{error!r}, not one of {wrong}: {what}"
    return error == ErrorCode.NONE


class JudgedCluster(Cluster):
    """The controller and the model do the same."""

    def __init__(self, config: ControllerConfig) -> None:
        self.model = Model()
        self._history: list[tuple[int, Model]] = []
        super().__init__(config)
        self.model.features = dict(self.image.features)
        self._remember()

    def _remember(self) -> None:
        self._history.append((self.image.offset, deepcopy(self.model)))

    def roll_back(self, offset: int) -> None:
        """What came after this offset never happened."""
        while self._history[-1][0] > offset:
            self._history.pop()
        self.model = deepcopy(self._history[-1][1])
        self.model.agrees(self.image)

    def handle(self, request: ControllerRequest) -> ControllerResponse:
        before = self.image
        try:
            response = super().handle(request)
        except KafkaError as error:
            _KEYS_AND_VALUES[type(request)](self, request, error.code)
            assert self.image is before
            raise
        judge = _JUDGES.get(type(request))
        if judge is not None:
            judge(self, request, response, before)
        elif type(request) in _KEYS_AND_VALUES:
            _KEYS_AND_VALUES[type(request)](self, request, response)
        self.model.agrees(self.image)
        self._remember()
        return response

    # --- brokers ------------------------------------------------------------------------------

    def _judge_epoch(
        self, broker_id: int, epoch: int, error: ErrorCode, before: MetadataImage
    ) -> bool:
        wrong: Errors = set()
        if broker_id not in self.model.brokers:
            wrong = {ErrorCode.BROKER_ID_NOT_REGISTERED}
        elif before.brokers[broker_id].broker_epoch != epoch:
            wrong = {ErrorCode.STALE_BROKER_EPOCH}
        return compare(error, wrong, broker_id)

    def judge_registration(
        self,
        request: requests.RegisterBrokerRequest,
        response: requests.RegisterBrokerResponse,
        before: MetadataImage,
    ) -> None:
        wrong: Errors = set()
        listeners = [one.listener for one in request.endpoints]
        taken = {
            directory
            for broker_id, broker in before.brokers.items()
            if broker_id != request.broker_id
            for directory in broker.log_directories
        }
        if request.cluster_id != CLUSTER_ID:
            wrong.add(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if (
            request.broker_id < 0
            or not listeners
            or len(set(listeners)) < len(listeners)
            or not taken.isdisjoint(request.log_directories)
        ):
            wrong.add(ErrorCode.INVALID_REGISTRATION)
        for name, level in self.model.features.items():
            if request.features and level and not values.covers(request.features, name, level):
                wrong.add(ErrorCode.UNSUPPORTED_VERSION)
        present = self.model.brokers.get(request.broker_id)
        another = present is not None and present[0] != request.incarnation_id
        settling = present is None and self.controller.deadline_ms() == 0
        if response.error == ErrorCode.DUPLICATE_BROKER_REGISTRATION and (another or settling):
            # Whether the session of the other lives is the controller's own knowledge, and so is
            # whether partitions have given up one that is gone.
            wrong.add(response.error)
        if compare(response.error, wrong, request):
            found = (request.incarnation_id, request.features)
            self.model.brokers[request.broker_id] = found
            assert self.image.brokers[request.broker_id].broker_epoch == response.broker_epoch

    def judge_heartbeat(
        self,
        request: requests.BrokerHeartbeatRequest,
        response: requests.BrokerHeartbeatResponse,
        before: MetadataImage,
    ) -> None:
        broker_id = request.broker_id
        if self._judge_epoch(broker_id, request.broker_epoch, response.error, before):
            assert response.fenced == self.image.brokers[broker_id].fenced
            caught_up = request.metadata_offset >= request.broker_epoch
            assert response.fenced or caught_up or not before.brokers[broker_id].fenced
            assert request.want_shut_down or not response.should_shut_down
        else:
            assert self.image is before

    def judge_unregistration(
        self,
        request: admin.UnregisterBrokerRequest,
        response: admin.AdminResponse,
        _before: MetadataImage,
    ) -> None:
        known = request.broker_id in self.model.brokers
        wrong = set() if known else {ErrorCode.BROKER_ID_NOT_REGISTERED}
        if compare(response.error, wrong, request):
            del self.model.brokers[request.broker_id]

    def judge_producer_ids(
        self,
        request: requests.AllocateProducerIdsRequest,
        response: requests.AllocateProducerIdsResponse,
        before: MetadataImage,
    ) -> None:
        if self._judge_epoch(request.broker_id, request.broker_epoch, response.error, before):
            assert (response.first, response.count) == (self.model.next_producer_id, PRODUCER_IDS)
            self.model.next_producer_id += PRODUCER_IDS

    # --- topics -------------------------------------------------------------------------------

    def judge_creation(
        self,
        request: requests.CreateTopicsRequest,
        response: requests.CreateTopicsResponse,
        before: MetadataImage,
    ) -> None:
        names, active = [topic.name for topic in request.topics], set(active_brokers(before))
        earlier: dict[str, TopicModel] = {}
        # Of topics named twice there is one answer.
        asked = {topic.name: topic for topic in request.topics}.values()
        for topic, result in zip(asked, response.topics, strict=True):
            wrong = self.model.creation(topic, names, earlier, active)
            if not compare(result.error, wrong, topic):
                continue
            count = len(topic.assignments) or (1 if topic.partitions == -1 else topic.partitions)
            assert result.partitions == count
            assert result.topic_id is not None
            earlier[topic.name] = TopicModel(result.topic_id, count)
            if not request.validate_only:
                self.model.set_configs((2, topic.name), {k: v or "" for k, v in topic.configs})
        if not request.validate_only:
            self.model.topics |= earlier

    def judge_deletion(
        self,
        request: requests.DeleteTopicsRequest,
        response: requests.DeleteTopicsResponse,
        _before: MetadataImage,
    ) -> None:
        ids = {name: topic.topic_id for name, topic in self.model.topics.items()}
        names = {topic_id: name for name, topic_id in ids.items()}
        refused: list[ErrorCode] = []
        found: Counter[str] = Counter()
        for name, topic_id in request.topics:
            if (name is None) == (topic_id is None):
                refused.append(ErrorCode.INVALID_REQUEST)
            elif topic_id is not None and topic_id not in names:
                refused.append(ErrorCode.UNKNOWN_TOPIC_ID)
            elif topic_id is None and name not in ids:
                refused.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                found[names[topic_id] if topic_id is not None else str(name)] += 1
        # What there is comes last, each once.
        expected = [
            *((error, None) for error in refused),
            *(
                (ErrorCode.INVALID_REQUEST if count > 1 else ErrorCode.NONE, name)
                for name, count in found.items()
            ),
        ]
        for (error, name), result in zip(expected, response.topics, strict=True):
            assert result.error is error, f"{result}: {request}"
            assert name in (None, result.name)
        for name in (one for one, count in found.items() if count == 1):
            del self.model.topics[name]
            self.model.set_configs((2, name), {})

    def judge_addition(
        self,
        request: admin.CreatePartitionsRequest,
        response: admin.AdminResponse,
        before: MetadataImage,
    ) -> None:
        names, active = [topic.name for topic in request.topics], set(active_brokers(before))
        for topic, outcome in zip(request.topics, response.outcomes, strict=True):
            factor = _factor(before, topic.name, 0)
            wrong = self.model.addition(topic, names, factor, active)
            if compare(outcome.error, wrong, topic) and not request.validate_only:
                self.model.topics[topic.name].partitions = topic.count

    def judge_reassignment(
        self,
        request: admin.AlterReassignmentsRequest,
        response: admin.AdminResponse,
        before: MetadataImage,
    ) -> None:
        named = [(one.topic, one.partition_id) for one in request.partitions]
        for one, outcome in zip(request.partitions, response.outcomes, strict=True):
            factor = _factor(before, one.topic, one.partition_id)
            fixed = None if request.allow_replication_factor_change else factor
            wrong = self.model.reassignment(one, named, fixed=fixed)
            old = _partition(before, one.topic, one.partition_id)
            if one.replicas is None and old is not None:
                wrong |= _cancel_errors(old)
            good = compare(outcome.error, wrong, one)
            new = _partition(self.image, one.topic, one.partition_id)
            if not good and named.count((one.topic, one.partition_id)) == 1:
                assert new == old
            elif good and new is not None and one.replicas is not None:
                assert new.replicas[: len(one.replicas)] == one.replicas
                assert set(new.replicas[len(one.replicas) :]) == set(new.removing_replicas)
            elif good and new is not None and old is not None:
                kept = [one for one in old.replicas if one not in old.adding_replicas]
                assert (*new.replicas,) == (*kept,)
                assert not new.adding_replicas + new.removing_replicas

    def judge_elections(
        self,
        request: admin.ElectLeadersRequest,
        response: admin.ElectLeadersResponse,
        before: MetadataImage,
    ) -> None:
        for result in response.results:
            partition = _partition(before, result.topic, result.partition_id)
            expected = _election(before, partition, request.election_type)
            assert result.error == expected, (result, partition)

    def judge_isrs(
        self,
        request: requests.AlterPartitionRequest,
        response: requests.AlterPartitionResponse,
        before: MetadataImage,
    ) -> None:
        if not self._judge_epoch(request.broker_id, request.broker_epoch, response.error, before):
            return
        for item, result in zip(request.partitions, response.partitions, strict=True):
            expected = _proposal(before, request.broker_id, item)
            moved = {ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED}
            assert result.error in (moved if expected == ErrorCode.NONE else {expected}), item

    # --- configs, security, features ----------------------------------------------------------

    def judge_configs(
        self,
        request: admin.AlterConfigsRequest,
        response: admin.AdminResponse,
        _before: MetadataImage,
    ) -> None:
        named = [(one.resource_type, one.resource_name) for one in request.resources]
        for resource, outcome in zip(request.resources, response.outcomes, strict=True):
            wrong, after = self.model.alteration(resource, named)
            if compare(outcome.error, wrong, resource) and not request.validate_only:
                owner = (resource.resource_type, resource.resource_name)
                self.model.set_configs(owner, after)

    def judge_quotas(
        self,
        request: security.AlterClientQuotasRequest,
        response: admin.AdminResponse,
        _before: MetadataImage,
    ) -> None:
        entities = [one.entity for one in request.entries]
        for one, outcome in zip(request.entries, response.outcomes, strict=True):
            wrong = self.model.quota(one, entities)
            if not compare(outcome.error, wrong, one) or request.validate_only:
                continue
            entity = values.ordered(one.entity)
            quotas = dict(self.model.quotas.pop(entity, {}))
            for key, value in one.changes:
                quotas.pop(key, None)
                if value is not None:
                    quotas[key] = value
            if quotas:
                self.model.quotas[entity] = quotas

    def judge_rules(
        self,
        request: security.CreateAclsRequest,
        response: admin.AdminResponse,
        _before: MetadataImage,
    ) -> None:
        low = self.model.too_low_for_security
        for rule, outcome in zip(request.bindings, response.outcomes, strict=True):
            wrong = set() if values.rule_is_good(rule) else {ErrorCode.INVALID_REQUEST}
            if compare(outcome.error, low | wrong, rule):
                self.model.acls.add(rule)

    def judge_removed_rules(
        self,
        request: security.DeleteAclsRequest,
        response: security.DeleteAclsResponse,
        _before: MetadataImage,
    ) -> None:
        for wanted, result in zip(request.filters, response.results, strict=True):
            bad = wanted.pattern_type not in (1, 2, 3, 4)
            if compare(result.error, {ErrorCode.INVALID_REQUEST} if bad else set(), wanted):
                meant = self.model.meant(wanted)
                assert set(result.bindings) == meant
                self.model.acls -= meant

    def judge_credentials(
        self,
        request: security.AlterScramRequest,
        response: admin.AdminResponse,
        _before: MetadataImage,
    ) -> None:
        for user, outcome in zip(request.users(), response.outcomes, strict=True):
            if not compare(outcome.error, self.model.credentials(request, user), request):
                continue
            for gone in request.deletions:
                if gone.user == user:
                    del self.model.scram[user, gone.mechanism]
            for new in request.upsertions:
                if new.user == user:
                    self.model.scram[user, new.mechanism] = new.iterations

    def judge_features(
        self,
        request: admin.UpdateFeaturesRequest,
        response: admin.AdminResponse,
        before: MetadataImage,
    ) -> None:
        named = [one.feature for one in request.updates]
        partitions = (one for topic in before.topics.in_order() for _, one in topic.items())
        there = any(one.directories for one in partitions)
        wrong: Errors = set()
        for one in request.updates:
            wrong |= self.model.feature(one, named, has_directories=there)
        if compare(response.error, wrong, request) and not request.validate_only:
            self.model.raise_levels(request.updates)

    # --- keys and values ----------------------------------------------------------------------

    def judge_put(self, request: kv.KvPutRequest, response: object) -> None:
        if self._judge_key(request.key, response):
            assert isinstance(response, kv.KvWriteResponse)
            assert response.version == self.image.offset
            self.model.keys[request.key] = request.value

    def judge_delete(self, request: kv.KvDeleteRequest, response: object) -> None:
        if self._judge_key(request.key, response):
            assert isinstance(response, kv.KvWriteResponse)
            there = request.key in self.model.keys
            compare(response.error, set() if there else {ErrorCode.RESOURCE_NOT_FOUND}, request)
            self.model.keys.pop(request.key, None)

    def judge_get(self, request: kv.KvGetRequest, response: object) -> None:
        if self._judge_key(request.key, response):
            assert isinstance(response, kv.KvGetResponse)
            assert response.value == self.model.keys.get(request.key)

    def _judge_key(self, key: str, response: object) -> bool:
        good = 1 <= len(key) <= 1024
        assert good or response == ErrorCode.INVALID_REQUEST
        return good


# --- what is so in an image -----------------------------------------------------------------------


def _partition(image: MetadataImage, name: str, partition_id: int) -> PartitionImage | None:
    topic = image.topics.by_name(name)
    return None if topic is None else topic.partitions.get(partition_id)


def _factor(image: MetadataImage, name: str, partition_id: int) -> int:
    partition = _partition(image, name, partition_id)
    return 0 if partition is None else len(partition.replicas) - len(partition.adding_replicas)


def _cancel_errors(partition: PartitionImage) -> Errors:
    if not partition.adding_replicas + partition.removing_replicas:
        return {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    left = set(partition.isr + partition.elr) - set(partition.adding_replicas)
    return set() if left else {ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def _election(image: MetadataImage, partition: PartitionImage | None, kind: int) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    online = availability(image).replicas_of(partition)
    preferred = partition.replicas[0]
    if kind == admin.UNCLEAN_ELECTION:
        if partition.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED
        anybody = not online.isdisjoint(partition.replicas)
        return ErrorCode.NONE if anybody else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if partition.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED
    ready = preferred in online and preferred in partition.isr
    return ErrorCode.NONE if ready else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def _proposal(image: MetadataImage, sender: int, item: requests.AlterPartitionItem) -> ErrorCode:
    """Apache Kafka's checks of an AlterPartition, in its order."""
    topic = image.topics.by_id(item.topic_id)
    partition = None if topic is None else topic.partitions.get(item.partition_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    members = [one for one, _ in item.new_isr]
    epochs = {one.broker_id: one.broker_epoch for one in image.brokers.values() if one.active}
    online = availability(image).replicas_of(partition)
    recovering = partition.leader_recovering
    checks: Sequence[tuple[bool, ErrorCode]] = (
        (item.leader_epoch > partition.leader_epoch, ErrorCode.NOT_CONTROLLER),
        (item.partition_epoch > partition.partition_epoch, ErrorCode.NOT_CONTROLLER),
        (item.leader_epoch < partition.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (sender != partition.leader, ErrorCode.INVALID_REQUEST),
        (item.partition_epoch < partition.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
        (not set(members) <= set(partition.replicas), ErrorCode.INVALID_REQUEST),
        (len(set(members)) < len(members), ErrorCode.INVALID_REQUEST),
        (sender not in members, ErrorCode.INVALID_REQUEST),
        (item.leader_recovering and len(members) > 1, ErrorCode.INVALID_REQUEST),
        (item.leader_recovering and not recovering, ErrorCode.INVALID_REQUEST),
        (
            any(epoch not in (-1, epochs.get(one, -2)) for one, epoch in item.new_isr)
            or not set(members) <= set(epochs)
            or not online.issuperset(members),
            ErrorCode.INELIGIBLE_REPLICA,
        ),
    )
    return next((error for failed, error in checks if failed), ErrorCode.NONE)


_JUDGES: Mapping[type, Callable[[Any, Any, Any, MetadataImage], None]] = {
    requests.RegisterBrokerRequest: JudgedCluster.judge_registration,
    requests.BrokerHeartbeatRequest: JudgedCluster.judge_heartbeat,
    admin.UnregisterBrokerRequest: JudgedCluster.judge_unregistration,
    requests.AllocateProducerIdsRequest: JudgedCluster.judge_producer_ids,
    requests.CreateTopicsRequest: JudgedCluster.judge_creation,
    requests.DeleteTopicsRequest: JudgedCluster.judge_deletion,
    admin.CreatePartitionsRequest: JudgedCluster.judge_addition,
    admin.AlterReassignmentsRequest: JudgedCluster.judge_reassignment,
    admin.ElectLeadersRequest: JudgedCluster.judge_elections,
    requests.AlterPartitionRequest: JudgedCluster.judge_isrs,
    admin.AlterConfigsRequest: JudgedCluster.judge_configs,
    security.AlterClientQuotasRequest: JudgedCluster.judge_quotas,
    security.CreateAclsRequest: JudgedCluster.judge_rules,
    security.DeleteAclsRequest: JudgedCluster.judge_removed_rules,
    security.AlterScramRequest: JudgedCluster.judge_credentials,
    admin.UpdateFeaturesRequest: JudgedCluster.judge_features,
}
_KEYS_AND_VALUES: Mapping[type, Callable[[Any, Any, object], None]] = {
    kv.KvPutRequest: JudgedCluster.judge_put,
    kv.KvDeleteRequest: JudgedCluster.judge_delete,
    kv.KvGetRequest: JudgedCluster.judge_get,
}
