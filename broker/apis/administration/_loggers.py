"""Levels of this broker's loggers, as configs of the resource type BROKER_LOGGER (KIP-412).

A broker has its own levels alone and stores none of them, so it decides by itself. Source: Apache
Kafka's RuntimeLoggerManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.loggers import Level, LogLevels, read_level
from raftctl.metadata.requests.admin import AlterOperation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from broker.apis.handler import ApiContext
    from raftctl.metadata.requests.admin import ConfigAlteration, ConfigChange

_VALID = ", ".join(sorted(level.name for level in Level))


def levels_of(context: ApiContext, name: str, keys: Collection[str] | None) -> Mapping[str, str]:
    """Return the level of each logger, or of those asked for, if `name` is this broker.

    Raises KafkaError(INVALID_REQUEST) for another broker.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_broker(context, name)
    found = LogLevels.of(context.log).all()
    return {one: level.name for one, level in found.items() if keys is None or one in keys}


def alter_levels(context: ApiContext, alteration: ConfigAlteration, *, validate_only: bool) -> None:
    """Set and unset levels of this broker, all or none.

    Raises KafkaError: INVALID_REQUEST for another broker, for a logger named twice, for an
    operation other than SET and DELETE, and to unset `root`; INVALID_CONFIG for an unknown logger
    or level.
    """
    _check_broker(context, alteration.resource_name)
    names = [change.key for change in alteration.changes]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    levels = LogLevels.of(context.log)
    changes = {change.key: _level(levels, change) for change in alteration.changes}
    if validate_only:
        return
    levels.alter(changes)
    for name in changes:
        context.log.warning("log_level_changed", changed=name, to=levels.level(name).name)


def _level(levels: LogLevels, change: ConfigChange) -> Level | None:
    """The level that a change sets; None if it unsets one."""
    name = change.key
    match change.operation:
        case AlterOperation.SET:
            levels.check_name(name)
            try:
                return read_level(change.value or "")
            except ValueError:
                text = (
                    f"Cannot set the log level of {name} to {change.value!s:.100} as it is not a "
                    f"supported log level. Valid log levels are {_VALID}"
                )
                raise KafkaError(ErrorCode.INVALID_CONFIG, text) from None
        case AlterOperation.DELETE:
            levels.check_unset(name)
            return None
        case AlterOperation.APPEND | AlterOperation.SUBTRACT:
            operation = AlterOperation(change.operation).name
        case _:
            operation = f"Unknown operation type {change.operation}"
    text = f"{operation} operation is not allowed for the BROKER_LOGGER resource"
    raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _check_broker(context: ApiContext, name: str) -> None:
    try:
        asked = int(name)
    except ValueError:
        text = f"Node id must be an integer, but it is: {name:.100}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text) from None
    own = context.config.node_id
    if asked != own:
        text = f"Unexpected node id. Expected {own}, but received {asked}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
