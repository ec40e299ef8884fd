"""UpdateFeatures: levels are raised, and lowered where nothing is lost by it (row C11; KIP-584)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._config_control import settled_partitions
from raftctl.controller._result import ControllerResult, admin_result
from raftctl.controller.cluster import unregister_all
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    COORDINATION_LEVEL,
    DIRECTORIES_LEVEL,
    ELR_FEATURE,
    METADATA_VERSION_FEATURE,
    SECURITY_LEVEL,
    SUPPORTED,
    level_of,
)
from raftctl.metadata.image import BROKER_RESOURCE, MetadataDelta
from raftctl.metadata.records import ConfigRecord, FeatureLevelRecord, SnapshotMarkRecord
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AdminResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdate,
    Outcome,
    UpdateFeaturesRequest,
)

if TYPE_CHECKING:
    from raftctl.controller.cluster import ControllerRegistrations
    from raftctl.metadata.configs.topic import TopicConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record

_MIN_ISR = "min.insync.replicas"


def no_quorum(
    _image: MetadataImage, _request: DescribeQuorumRequest, _defaults: TopicConfig
) -> ControllerResult:
    """Who has a quorum to tell of answers instead: the controller's service."""
    message = "This controller has no quorum to tell of"
    error = ErrorCode.UNSUPPORTED_VERSION
    return ControllerResult((), DescribeQuorumResponse(error, message, -1, -1, -1, (), ()))


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    defaults: TopicConfig,
    controllers: ControllerRegistrations,
) -> ControllerResult:
    """Changes the levels, all or none: one that cannot be changed is the error for all.

    Errors: INVALID_UPDATE_VERSION; INVALID_REQUEST if a feature is named twice.
    """
    named = Counter(one.feature for one in request.updates)
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
    outcomes = [Outcome() for _ in request.updates]
    if request.validate_only:
        return admin_result([], outcomes)
    after = [*_consequences(image, records, defaults), *_cut(image, request)]
    return admin_result([*_forgotten(image, records), *records, *after], outcomes)


def _forgotten(image: MetadataImage, records: list[Record]) -> list[Record]:
    """The lower level does not know registrations of controllers. These tell anew what they can."""
    levels = {one.name: one.level for one in records if isinstance(one, FeatureLevelRecord)}
    lower = levels.get(METADATA_VERSION_FEATURE, CONTROLLERS_LEVEL) < CONTROLLERS_LEVEL
    return unregister_all(image) if lower else []


def _cut(image: MetadataImage, request: UpdateFeaturesRequest) -> list[Record]:
    """After a downgrade of the metadata every replica takes a snapshot at once.

    The log before it may hold what the lower level does not know: an older node that is started
    on it begins with the snapshot.
    """
    level = level_of(image, METADATA_VERSION_FEATURE)
    lowered = any(
        one.feature == METADATA_VERSION_FEATURE and one.level < level for one in request.updates
    )
    return [SnapshotMarkRecord()] if lowered else []


def _check(
    image: MetadataImage, update: FeatureUpdate, controllers: ControllerRegistrations
) -> None:
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
    """Every registered broker, also one that is away, must be able to work with the level."""
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
    """A standby that cannot read the records of the level would end with the first of them."""
    unable = controllers.unable(image, update.feature, update.level)
    if unable:
        raise _refused(
            f"Level {update.level} of {update.feature} is not supported by controller(s) "
            f"{', '.join(unable)}: upgrade or unregister them first"
        )


def _check_nothing_is_lost(image: MetadataImage, update: FeatureUpdate) -> None:
    """Also an unsafe downgrade is refused here: older nodes could not read the log at all."""
    held = {
        "client quotas": (SECURITY_LEVEL, image.client_quotas),
        "access control lists": (SECURITY_LEVEL, image.acls),
        "SCRAM credentials": (SECURITY_LEVEL, image.scram),
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
    topics = image.topics.topics.values()
    return any(one.directories for topic in topics for one in topic.partitions.values())


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _consequences(
    image: MetadataImage, records: list[Record], defaults: TopicConfig
) -> list[Record]:
    """What follows for partitions when eligible leaders begin or end."""
    if not any(isinstance(one, FeatureLevelRecord) and one.name == ELR_FEATURE for one in records):
        return []
    more: list[Record] = []
    if _MIN_ISR not in image.config(BROKER_RESOURCE, ""):
        # From now on brokers and controllers must agree on it, whatever their files say.
        value = str(defaults.min_insync_replicas)
        more.append(ConfigRecord(BROKER_RESOURCE, "", _MIN_ISR, value))
    delta = MetadataDelta(image)
    for record in (*records, *more):
        delta.replay(record, image.offset)
    after = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    return [*more, *settled_partitions(after, after.topics.topics.values(), defaults)]
