"""Topics: create, add partitions, delete (row C3), with Kafka's error for each invalid input.

Topics of a request succeed or fail on their own. Those that succeed are written in one batch with
all their partitions, so no reader ever sees a topic without them. The number of partitions of one
request is bounded, since the batch must fit into memory and into one append.

Sources: KIP-464 (defaults), KIP-516 (topic ids); Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from raftctl.controller._result import ControllerResult, admin_result, lost_with
from raftctl.controller.partitions._availability import active_brokers
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.configs.topic import broker_topic_defaults, validate_topic_config
from raftctl.metadata.placement import (
    bad_assignment,
    check_assignments,
    place_replicas,
    usable_brokers,
)
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from raftctl.metadata.requests.admin import ItemOutcome
from raftctl.metadata.requests.cluster import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    TopicResult,
)
from raftctl.metadata.topic_names import RESERVED, close_form, name_problem

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from raftctl.controller._config import ControllerConfig
    from raftctl.metadata.image import MetadataImage, TopicImage
    from raftctl.metadata.requests.admin import CreatePartitionsRequest, NewPartitions

_DEFAULT = -1
"""Number of partitions or replicas that leaves the choice to the controller (KIP-464)."""


class TopicControl:
    """Topics on the active controller; `rng` makes ids and spreads replicas."""

    def __init__(self, config: ControllerConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng

    # --- create -----------------------------------------------------------------------------------

    def create(self, image: MetadataImage, request: CreateTopicsRequest) -> ControllerResult:
        """Create each topic on its own; with `validate_only` only check the request.

        Errors of a topic: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST if
        it is named twice or its name is reserved, POLICY_VIOLATION if the request is for too many
        partitions.
        """
        names = Counter(topic.name for topic in request.topics)
        # Topics that the request creates count as well: the image does not show them, so two names
        # of one request that collide would both pass.
        close_names = _close_names(image, request)
        room = self._config.request_partitions_max
        records: list[Record] = []
        results = []
        for topic in {topic.name: topic for topic in request.topics}.values():
            try:
                if names[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice")
                _check_name(image, topic.name, close_names)
                created, result = self._create_topic(image, topic, room)
            except KafkaError as error:
                results.append(TopicResult(topic.name, error.code, error.message))
                continue
            close_names[close_form(topic.name)] = topic.name
            room -= result.partitions
            invariant(room >= 0, "the partitions of a request fit into a batch")
            records += created
            results.append(result)
        response = CreateTopicsResponse(ErrorCode.NONE, tuple(results))
        written = () if request.validate_only else tuple(records)
        return ControllerResult(written, response, lost=lost_with(written))

    def _create_topic(
        self, image: MetadataImage, topic: NewTopic, room: int
    ) -> tuple[list[Record], TopicResult]:
        """Return the records of one topic and its result; `room` bounds its partitions.

        Raises KafkaError; see `create`.
        """
        defaults = broker_topic_defaults(image, self._config.topic_defaults)
        validate_topic_config(dict(topic.configs), defaults)
        if topic.assignments:
            assignments = _check_assignments(image, topic)
        else:
            partitions, factor = self._counts(topic, room)
            assignments = place_replicas(usable_brokers(image), partitions, factor, self._rng)
        if len(assignments) > room:
            raise _too_many(self._config.request_partitions_max)
        topic_id = UUID(int=self._rng.getrandbits(128), version=4)
        records: list[Record] = [TopicRecord(topic.name, topic_id)]
        records += [
            ConfigRecord(TOPIC_RESOURCE, topic.name, key, value) for key, value in topic.configs
        ]
        records += _new_partitions(image, topic_id, assignments, 0)
        return records, TopicResult(
            topic.name,
            ErrorCode.NONE,
            topic_id=topic_id,
            partitions=len(assignments),
            replication_factor=len(assignments[0]),
        )

    def _counts(self, topic: NewTopic, room: int) -> tuple[int, int]:
        """Return the numbers of partitions and of replicas of a topic that assigns none itself."""
        partitions, factor = topic.partitions, topic.replication_factor
        if partitions == _DEFAULT:
            partitions = self._config.default_partitions
        if factor == _DEFAULT:
            factor = self._config.default_replication_factor
        if partitions < 1:
            message = "The number of partitions must be above 0, or -1 for the default"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        if factor < 1:
            message = "The replication factor must be above 0, or -1 for the default"
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        if partitions > room:
            raise _too_many(self._config.request_partitions_max)
        return partitions, factor

    # --- add partitions ---------------------------------------------------------------------------

    def create_partitions(
        self, image: MetadataImage, request: CreatePartitionsRequest
    ) -> ControllerResult:
        """Add partitions to each topic on its own; the number of partitions never shrinks.

        A consumer maps keys to partitions by their number, and removed partitions would take their
        records with them.

        Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS unless the new count is
        above the present one, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR if too few
        brokers are left, INVALID_REQUEST if it is named twice or its name is reserved (of a topic
        that an older release created), POLICY_VIOLATION if the request is for too many partitions.
        """
        names = Counter(topic.name for topic in request.topics)
        room = self._config.request_partitions_max
        records: list[Record] = []
        outcomes = []
        for topic in request.topics:
            try:
                if names[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic is named twice")
                added = self._add_partitions(image, topic, room)
            except KafkaError as error:
                outcomes.append(ItemOutcome(error.code, error.message))
                continue
            room -= len(added)
            invariant(room >= 0, "the partitions of a request fit into a batch")
            records += added
            outcomes.append(ItemOutcome())
        return admin_result([] if request.validate_only else records, outcomes)

    def _add_partitions(
        self, image: MetadataImage, wanted: NewPartitions, room: int
    ) -> list[Record]:
        topic = image.topics.by_name(wanted.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist")
        _check_not_reserved(wanted.name)
        present = len(topic.partitions)
        added = wanted.count - present
        if added <= 0:
            message = f"The topic has {present} partition(s): the new count must be above {present}"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        if added > room:
            raise _too_many(self._config.request_partitions_max)
        # During a reassignment the old and the new replicas are counted once.
        factor = len(topic.partitions[0].stationary)
        if wanted.assignments is None:
            assignments = place_replicas(usable_brokers(image), added, factor, self._rng)
        else:
            assignments = list(wanted.assignments)
            if len(assignments) != added:
                message = f"{added} partition(s) are new, {len(assignments)} are assigned"
                raise bad_assignment(message)
            check_assignments(image, assignments, present, factor)
        return _new_partitions(image, topic.topic_id, assignments, present)

    # --- delete -----------------------------------------------------------------------------------

    def delete(self, image: MetadataImage, request: DeleteTopicsRequest) -> ControllerResult:
        """Delete each topic on its own, identified by name or by id.

        Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST if it is
        named by both or neither, or, once, if it is named twice. The error of the whole request:
        TOPIC_DELETION_DISABLED.
        """
        if not self._config.topic_deletion:
            response = DeleteTopicsResponse(ErrorCode.TOPIC_DELETION_DISABLED, ())
            return ControllerResult((), response)
        records: list[Record] = []
        results = []
        named: Counter[UUID] = Counter()
        found: dict[UUID, TopicImage] = {}
        for name, topic_id in request.topics:
            try:
                topic = _named_topic(image, name, topic_id)
            except KafkaError as error:
                results.append(TopicResult(name or "", error.code, error.message, topic_id))
                continue
            named[topic.topic_id] += 1
            found[topic.topic_id] = topic
        for topic_id, topic in found.items():
            if named[topic_id] > 1:
                code, text = ErrorCode.INVALID_REQUEST, "The topic is named twice"
                results.append(TopicResult(topic.name, code, text, topic_id))
                continue
            records.append(RemoveTopicRecord(topic_id))
            results.append(TopicResult(topic.name, ErrorCode.NONE, topic_id=topic_id))
        response = DeleteTopicsResponse(ErrorCode.NONE, tuple(results))
        return ControllerResult(tuple(records), response, lost=lost_with(records))


def _named_topic(image: MetadataImage, name: str | None, topic_id: UUID | None) -> TopicImage:
    """Return the topic of a name or of an id. Raises KafkaError; see `TopicControl.delete`."""
    if (name is None) == (topic_id is None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is named by name or by id")
    if topic_id is not None:
        topic, missing = image.topics.by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = image.topics.by_name(name or "")
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        raise KafkaError(missing, "The topic does not exist")
    return topic


def _new_partitions(
    image: MetadataImage, topic_id: UUID, assignments: Sequence[tuple[int, ...]], first_id: int
) -> list[Record]:
    """Return the records of the partitions from `first_id` on.

    The active replicas form the ISR and the first of them leads. All logs are empty, so nothing
    distinguishes an active replica from another. A fenced one joins as any follower does.
    """
    active = active_brokers(image)
    records: list[Record] = []
    for partition_id, replicas in enumerate(assignments, start=first_id):
        isr = tuple(filter(active.__contains__, replicas))
        records.append(PartitionRecord(topic_id, partition_id, replicas, isr, isr[0], 0, 0))
    return records


# --- names ----------------------------------------------------------------------------------------


def _check_name(image: MetadataImage, name: str, close_names: dict[str, str]) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    _check_not_reserved(name)
    if name in image.topics.ids:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists")
    other = close_names.get(close_form(name))
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} collides with topic {other!r}: '.' and '_' are the same in names of metrics",
        )


def _check_not_reserved(name: str) -> None:
    if name in RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is refused")


def _close_names(image: MetadataImage, request: CreateTopicsRequest) -> dict[str, str]:
    """Return the close forms of existing topics, with their names.

    Empty if no new name has a '.' or a '_': then none can collide, and a cluster may have many
    topics.
    """
    if not any("." in topic.name or "_" in topic.name for topic in request.topics):
        return {}
    return {close_form(name): name for name in sorted(image.topics.ids)}


# --- explicit assignments -------------------------------------------------------------------------


def _check_assignments(image: MetadataImage, topic: NewTopic) -> list[tuple[int, ...]]:
    """Return the replicas that the request assigns, in order of partition ids.

    Raises KafkaError: INVALID_REQUEST if it names counts as well, INVALID_REPLICA_ASSIGNMENT unless
    the ids are complete and the replicas usable.
    """
    if topic.partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        message = "With an assignment, the counts of partitions and replicas must be -1"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    assignments = dict(topic.assignments)
    if sorted(partition_id for partition_id, _ in topic.assignments) != [*range(len(assignments))]:
        raise bad_assignment("The partition ids must be 0 and up, each once")
    in_order = [assignments[partition_id] for partition_id in range(len(assignments))]
    check_assignments(image, in_order, 0, len(in_order[0]))
    return in_order


def _too_many(limit: int) -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, f"One request creates at most {limit} partitions")
