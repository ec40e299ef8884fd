"""Client quotas (row C12), with Kafka's error for invalid input.

A quota belongs to an entity: a user, a client id, both, or an address. Its name is None for the
default of its type. Rates are per second; `request_percentage` is of one thread's time.

Entities are stored with their parts in the order of the types. Two requests that name the parts in
different order mean the same entity, and a broker looks it up by one key.

Source: KIP-546, KIP-612 (connection rates).
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from typing import TYPE_CHECKING

from raftctl.controller._result import admin_result
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.integers import INT_MAX
from raftctl.metadata.features import SECURITY_LEVEL, require_level
from raftctl.metadata.image.types import quota_order
from raftctl.metadata.records import ClientQuotaRecord
from raftctl.metadata.requests.admin import ItemOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.controller._result import ControllerResult
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.image.types import QuotaEntity
    from raftctl.metadata.requests.security import AlterClientQuotasRequest, QuotaAlteration

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_CLIENT_KEYS: Mapping[str, bool] = {
    "producer_byte_rate": True,
    "consumer_byte_rate": True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
"""Key to whether its value must be a whole number."""
_IP_KEYS: Mapping[str, bool] = {"connection_creation_rate": True}


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> ControllerResult:
    """Change the quotas of each entity on its own.

    Errors of an entity: INVALID_REQUEST; UNSUPPORTED_VERSION below the `metadata.version` that
    knows quotas.
    """
    named = Counter(_sorted(entry.entity) for entry in request.entries)
    records: list[ClientQuotaRecord] = []
    outcomes = []
    for entry in request.entries:
        try:
            require_level(image, SECURITY_LEVEL)
            if named[_sorted(entry.entity)] > 1:
                raise _invalid("The entity is named twice")
            records += _alter(image, entry)
        except KafkaError as error:
            outcomes.append(ItemOutcome(error.code, error.message))
            continue
        outcomes.append(ItemOutcome())
    return admin_result([] if request.validate_only else records, outcomes)


def _sorted(entity: QuotaEntity) -> QuotaEntity:
    """Return the entity as the image stores it: its parts in the order of their types."""
    return tuple(sorted(entity, key=lambda part: quota_order((part,))))


def _alter(image: MetadataImage, wanted: QuotaAlteration) -> list[ClientQuotaRecord]:
    """Return the records that change one entity; none for values that it has already.

    Raises KafkaError(INVALID_REQUEST) for the entity, a key or a value; then nothing changes.
    """
    keys = _keys(wanted.entity)
    entity = _sorted(wanted.entity)
    before = image.client_quotas.get(entity)
    named = Counter(key for key, _ in wanted.changes)
    records = []
    for key, value in wanted.changes:
        if named[key] > 1:
            raise _invalid(f"{key} is named twice")
        if key not in keys:
            raise _invalid(f"There is no quota {key} of this entity; there are {', '.join(keys)}")
        if value is not None:
            _check_value(key, value, whole=keys[key])
        if value != (None if before is None else before.get(key)):
            records.append(ClientQuotaRecord(entity, key, value))
    # Replay sets values one by one: of two records for a key only the last would count.
    invariant(len({record.key for record in records}) == len(records), "a quota changes once")
    return records


def _keys(entity: QuotaEntity) -> Mapping[str, bool]:
    """Return the keys that the entity may have; KafkaError(INVALID_REQUEST) for its parts."""
    kinds = [kind for kind, _ in entity]
    if not kinds or len(set(kinds)) < len(kinds):
        raise _invalid("An entity has one part of each type, at least one")
    if any(name == "" for _, name in entity):
        raise _invalid("The name of an entity is not empty; the default is meant by null")
    if kinds == [IP]:
        _check_ip(entity[0][1])
        return _IP_KEYS
    if not set(kinds) <= {USER, CLIENT_ID}:
        raise _invalid("An entity is a user, a client-id, both, or an ip alone")
    return _CLIENT_KEYS


def _check_ip(name: str | None) -> None:
    try:
        ipaddress.ip_address(name or "127.0.0.1")
    except ValueError:
        raise _invalid(f"{name!r:.100} is no IP address") from None


def _check_value(key: str, value: float, *, whole: bool) -> None:
    """Raise KafkaError(INVALID_REQUEST) for a value that no broker could apply.

    0 is refused as well: it would block the client for ever, and deletion is asked for by null.
    """
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{key} must be above 0, not {value}")
    if whole and value != int(value):
        raise _invalid(f"{key} must be a whole number, not {value}")
    if key in _IP_KEYS and value > INT_MAX:
        raise _invalid(f"{key} must be at most {INT_MAX}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
