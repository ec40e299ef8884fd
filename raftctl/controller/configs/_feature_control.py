"""UpdateFeatures: raise feature levels, and lower them where no metadata is lost (row C11).

A level is raised only if every registered broker, every registered controller and every voter
supports it: a node that meets a record it does not know has to stop. A level is lowered only if the
image holds nothing that the lower level cannot express. A snapshot follows at once, so an older
node need not read the log of the higher level.

Sources: KIP-584, KIP-778 (downgrades), KIP-966 (eligible leaders); Kafka's `FeatureControlManager`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._cluster_control import unregister_all
from raftctl.controller._result import ControllerResult, admin_result
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import ResourceType
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    COORDINATION_LEVEL,
    DIRECTORIES_LEVEL,
    ELR_FEATURE,
    KEY_RULES_LEVEL,
    METADATA_VERSION_FEATURE,
    SECURITY_LEVEL,
    SUPPORTED,
    TOKENS_LEVEL,
    level_of,
)
from raftctl.metadata.image import MetadataDelta
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    SnapshotMarkRecord,
)
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AdminResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdate,
    ItemOutcome,
    UpdateFeaturesRequest,
)

if TYPE_CHECKING:
    from raftctl.controller._cluster_control import ControllerRegistrations
    from raftctl.controller.partitions import PartitionReconciler
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record

_MIN_ISR = "min.insync.replicas"


def no_quorum(_image: MetadataImage, _request: DescribeQuorumRequest) -> ControllerResult:
    """Refuse: the controller's service, which knows the quorum, answers this request itself."""
    message = "This controller has no quorum to tell of"
    error = ErrorCode.UNSUPPORTED_VERSION
    return ControllerResult((), DescribeQuorumResponse(error, message, -1, -1, -1, (), ()))


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    defaults: TopicConfig,
    controllers: ControllerRegistrations,
    reconciler: PartitionReconciler,
) -> ControllerResult:
    """Change the levels, all or none: an error of one is the error of the request.

    Errors: INVALID_UPDATE_VERSION if a level is unknown, unsupported by a node, or would lose
    metadata; INVALID_REQUEST if a feature is named twice.
    """
    named = Counter(update.feature for update in request.updates)
    records: list[Record] = []
    try:
        for update in request.updates:
            if named[update.feature] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{update.feature} is named twice")
            _check(image, update, controllers)
            if update.level != level_of(image, update.feature):
                records.append(FeatureLevelRecord(update.feature, update.level))
    except KafkaError as error:
        return ControllerResult((), AdminResponse(error.code, error.message, ()))
    outcomes = [ItemOutcome() for _ in request.updates]
    if request.validate_only:
        return admin_result([], outcomes)
    after = [*_consequences(image, records, defaults, reconciler), *_snapshot_mark(image, request)]
    return admin_result([*_unregistered(image, records), *records, *after], outcomes)


def _unregistered(image: MetadataImage, records: list[Record]) -> list[Record]:
    """Unregister all controllers if the lower level does not know their registrations.

    Controllers register again, with this controller's soft state.
    """
    levels = {
        record.name: record.level for record in records if isinstance(record, FeatureLevelRecord)
    }
    lower = levels.get(METADATA_VERSION_FEATURE, CONTROLLERS_LEVEL) < CONTROLLERS_LEVEL
    return unregister_all(image) if lower else []


def _snapshot_mark(image: MetadataImage, request: UpdateFeaturesRequest) -> list[Record]:
    """Make every replica take a snapshot at once if `metadata.version` is lowered.

    The log may hold records that the lower level does not know. An older node that is started on
    this disk begins with the snapshot instead.
    """
    level = level_of(image, METADATA_VERSION_FEATURE)
    lowered = any(
        update.feature == METADATA_VERSION_FEATURE and update.level < level
        for update in request.updates
    )
    return [SnapshotMarkRecord()] if lowered else []


def _check(
    image: MetadataImage, update: FeatureUpdate, controllers: ControllerRegistrations
) -> None:
    """Raise KafkaError(INVALID_UPDATE_VERSION) unless the level may be in force from now on.

    The type of the update must agree with its direction: a client that upgrades by a stale view of
    the cluster must not lower a level.
    """
    levels = SUPPORTED.get(update.feature)
    if levels is None:
        raise _refused(f"There is no feature {update.feature}; there are {', '.join(SUPPORTED)}")
    low, high = levels
    if not low <= update.level <= high:
        raise _refused(f"The level of {update.feature} must be {low} to {high}, not {update.level}")
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(f"upgrade_type must be 1 to 3, not {update.upgrade_type}")
    present = level_of(image, update.feature)
    if update.level < present and update.upgrade_type == UPGRADE:
        raise _refused(f"{update.feature} is {present}: to lower it, ask for a safe downgrade")
    if update.level > present and update.upgrade_type != UPGRADE:
        raise _refused(f"{update.feature} is {present}: to raise it, ask for an upgrade")
    if update.level != present:
        _check_brokers(image, update)
        _check_controllers(image, update, controllers)
    if update.feature == METADATA_VERSION_FEATURE and update.level < present:
        _check_nothing_is_lost(image, update)


def _check_brokers(image: MetadataImage, update: FeatureUpdate) -> None:
    """Check that every registered broker supports the level, fenced or not.

    A fenced broker may return at any time, and would then meet records that it cannot read.
    """
    unable = [
        str(broker_id)
        for broker_id in sorted(image.brokers)
        if not image.brokers[broker_id].supports(update.feature, update.level)
    ]
    if unable:
        raise _refused(
            f"Level {update.level} of {update.feature} is not supported by broker(s) "
            f"{', '.join(unable)}: upgrade or unregister them first"
        )


def _check_controllers(
    image: MetadataImage, update: FeatureUpdate, controllers: ControllerRegistrations
) -> None:
    """Check that every controller supports the level: a standby replays all records, too."""
    unable = controllers.unable(image, update.feature, update.level)
    if unable:
        raise _refused(
            f"Level {update.level} of {update.feature} is not supported by controller(s) "
            f"{', '.join(unable)}: upgrade or unregister them first"
        )


def _check_nothing_is_lost(image: MetadataImage, update: FeatureUpdate) -> None:
    """Check that the lower level can express the image, also for an unsafe downgrade.

    Kafka's unsafe downgrade drops metadata. Here a node refuses a log that it does not know, so an
    older node could not be started at all.
    """
    held = {
        "client quotas": (SECURITY_LEVEL, image.client_quotas),
        "access control lists": (SECURITY_LEVEL, image.acls),
        "rules on keys": (KEY_RULES_LEVEL, _has_key_rules(image)),
        "SCRAM credentials": (SECURITY_LEVEL, image.scram),
        "delegation tokens": (TOKENS_LEVEL, image.tokens),
        "sessions": (COORDINATION_LEVEL, image.coordination.sessions),
    }
    lost = [name for name, (level, there) in held.items() if there and update.level < level]
    if update.level < DIRECTORIES_LEVEL and _has_directories(image):
        raise _refused(
            f"{METADATA_VERSION_FEATURE} {update.level} does not know partitions' log directories: "
            "start the brokers with one log directory each first"
        )
    if lost:
        raise _refused(
            f"{METADATA_VERSION_FEATURE} {update.level} does not know {', '.join(lost)}: delete "
            "them first"
        )


def _has_directories(image: MetadataImage) -> bool:
    """Return whether any partition has log directories: only then a lower level loses them."""
    topics = image.topics.topics.values()
    return any(partition.directories for topic in topics for partition in topic.partitions.values())


def _has_key_rules(image: MetadataImage) -> bool:
    return any(rule.resource_type == ResourceType.KEY for rule in image.acls.values())


def _refused(message: str) -> KafkaError:
    """Return the error of an update that a node or the image does not allow."""
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _consequences(
    image: MetadataImage,
    records: list[Record],
    defaults: TopicConfig,
    reconciler: PartitionReconciler,
) -> list[Record]:
    """Return the changes of partitions when eligible leader replicas are enabled or disabled."""
    if not any(
        isinstance(record, FeatureLevelRecord) and record.name == ELR_FEATURE for record in records
    ):
        return []
    more: list[Record] = []
    if _MIN_ISR not in image.config(BROKER_RESOURCE, ""):
        # Brokers and controllers have to agree on the minimum from now on. Their files may differ,
        # and then a leader would commit what the controller takes for uncommitted.
        value = str(defaults.min_insync_replicas)
        more.append(ConfigRecord(BROKER_RESOURCE, "", _MIN_ISR, value))
    delta = MetadataDelta(image)
    for record in (*records, *more):
        delta.replay(record, image.offset)
    after = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    return [*more, *reconciler.reconcile_topics(after, after.topics.topics.values())]
