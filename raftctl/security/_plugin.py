"""Finding an authorizer: the plug point of row P3."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from raftctl.security._principal import Authorizer

AUTHORIZER_GROUP = "raftctl.authorizers"
_NAMES = {"org.apache.kafka.metadata.authorizer.StandardAuthorizer": "standard"}
"""Classes of Apache Kafka to the plug-ins that decide alike, so that its files work here."""


def load_authorizer(
    class_name: str, config: Mapping[str, str], log: FilteringBoundLogger
) -> Authorizer:
    """Make the authorizer of `authorizer.class.name`, a plug-in's name or a class of Apache Kafka.

    `config` has the node's keys as they were written; `log` takes the audit lines. ConfigError
    lists those installed if there is none of that name, or is that of the plug-in.
    """
    found = {point.name: point for point in entry_points(group=AUTHORIZER_GROUP)}
    point = found.get(_NAMES.get(class_name, class_name))
    if point is None:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(
            f"authorizer.class.name: no authorizer {class_name!r}; installed: {known}"
        )
    plugin: type[Authorizer] = point.load()
    return plugin(config, log)
