"""Registrations of controllers, voters and standbys: the feature levels they support (row C11).

A registration is a record, from the `metadata.version` on that knows such records. Below it the
active controller keeps the registrations that it received since it became active as soft state.
Otherwise the step to that level would be the only one that is not checked. A voter that has not
registered is of an older release.

Source: KIP-919.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._config import SESSION_TIMEOUT_KEY
from raftctl.controller._result import ControllerResult
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    METADATA_VERSION_FEATURE,
    level_of,
    supports,
    unsupported,
)
from raftctl.metadata.image import ControllerImage
from raftctl.metadata.records import RegisterControllerRecord, UnregisterControllerRecord
from raftctl.metadata.requests.cluster import RegisterControllerResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import FeatureRange, Record
    from raftctl.metadata.requests.cluster import RegisterControllerRequest

CONTROLLERS_MAX = 1_000
"""Controllers registered at once: far more than any cluster has, so no client fills the log."""
FEATURES_MAX = 100
SETTINGS_MAX = 100
SETTING_SHOWN = 40
"""Characters of another controller's value that a warning shows."""


class ControllerRegistrations:
    """Registered controllers, as the active one knows them."""

    def __init__(
        self, cluster_id: str, settings: tuple[str, ...], voter_ids: Callable[[], Collection[int]]
    ) -> None:
        """`settings`: see `ControllerConfig.settings`."""
        self._cluster_id = cluster_id
        self._settings = settings
        self._voter_ids = voter_ids
        self._unlogged: dict[int, tuple[FeatureRange, ...]] = {}
        """Feature ranges by controller id, at a `metadata.version` whose log cannot hold them."""

    def clear(self) -> None:
        """Drop registrations that are not in the log."""
        self._unlogged.clear()

    def register(
        self, image: MetadataImage, request: RegisterControllerRequest
    ) -> ControllerResult:
        """Register a controller; the same registration again writes no record.

        Errors in the response: INCONSISTENT_CLUSTER_ID; INVALID_REGISTRATION; UNSUPPORTED_VERSION
        if it does not support a level in force. A warning names settings that differ.
        """
        try:
            self._check(image, request)
        except KafkaError as error:
            return ControllerResult((), RegisterControllerResponse(error.code, error.message))
        warning = _difference(self._settings, request.settings)
        response = RegisterControllerResponse(ErrorCode.NONE, warning)
        number, incarnation_id, features = (
            request.controller_id,
            request.incarnation_id,
            request.features,
        )
        if level_of(image, METADATA_VERSION_FEATURE) < CONTROLLERS_LEVEL:
            self._unlogged[number] = features
            return ControllerResult((), response)
        if image.controllers.get(number) == ControllerImage(number, incarnation_id, features):
            return ControllerResult((), response)
        record = RegisterControllerRecord(number, incarnation_id, features)
        return ControllerResult((record,), response)

    def _check(self, image: MetadataImage, request: RegisterControllerRequest) -> None:
        if request.cluster_id != self._cluster_id:
            why = f"The controller is of cluster {request.cluster_id}, not {self._cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        names = {feature.name for feature in request.features}
        known = {*image.controllers, *self._unlogged}
        problem = None
        if request.controller_id < 0:
            problem = f"{request.controller_id} is no controller id"
        elif METADATA_VERSION_FEATURE not in names:
            problem = f"The controller does not tell of {METADATA_VERSION_FEATURE}"
        elif len(names) < len(request.features) or len(names) > FEATURES_MAX:
            problem = "The controller names a feature twice, or too many"
        elif any(feature.lowest > feature.highest for feature in request.features):
            problem = "The lowest level of a feature is above its highest"
        elif request.controller_id not in known and len(known) >= CONTROLLERS_MAX:
            problem = f"There are {CONTROLLERS_MAX} controllers already: unregister some"
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, problem)
        node = f"controller {request.controller_id}"
        lacks = unsupported(node, request.features, image.features)
        if lacks is not None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, lacks)

    def unable(self, image: MetadataImage, feature: str, level: int) -> list[str]:
        """Return the controllers that do not support this level, or may not, for a message."""
        known = self._unlogged | {
            number: controller.features for number, controller in image.controllers.items()
        }
        found = [
            str(number) for number in sorted(known) if not supports(known[number], feature, level)
        ]
        silent = sorted(set(self._voter_ids()) - known.keys())
        return [*found, *(f"{number} (has not registered)" for number in silent)]

    def unregister(self, image: MetadataImage, controller_id: int) -> list[Record] | None:
        """Return the records that unregister a controller; None if it is not registered."""
        unlogged = self._unlogged.pop(controller_id, None)
        if controller_id in image.controllers:
            return [UnregisterControllerRecord(controller_id)]
        return None if unlogged is None else []


def _difference(ours: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    """Return a sentence that names each setting that differs; '' if none does.

    A setting that only one side has is ignored: the other may be of another release.
    """
    given = dict(setting.partition("=")[::2] for setting in theirs[:SETTINGS_MAX])
    pairs = (setting.partition("=")[::2] for setting in ours)
    differing = [
        f"{key}={given[key][:SETTING_SHOWN]} (the active controller has {value})"
        for key, value in pairs
        if given.get(key, value) != value
    ]
    if not differing:
        return ""
    remedy = "give all controllers the same, then restart those that differ, one at a time"
    lease = f"; until then a fenced broker may still answer reads, as {SESSION_TIMEOUT_KEY} differs"
    why = lease if any(each.startswith(SESSION_TIMEOUT_KEY) for each in differing) else ""
    return f"{', '.join(differing)}: {remedy}{why}"


def unregister_all(image: MetadataImage) -> list[Record]:
    """Return the records that unregister all controllers, for a level that does not know them."""
    return [UnregisterControllerRecord(number) for number in sorted(image.controllers)]
