"""Which quota holds for a client, and which clients share it (KIP-257, KIP-546)."""

from __future__ import annotations

import enum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.image.types import ClientQuotas as StoredClientQuotas
    from raftctl.metadata.image.types import QuotaEntity
    from raftctl.security import Principal

Scope = tuple[str, ...]
"""Clients with equal scopes share a quota. By default (user, client id), either of them empty."""

_CALLBACK_GROUP = "raftctl.client_quota_callbacks"
_USER, _CLIENT_ID = "user", "client-id"


class QuotaType(enum.Enum):
    """What a quota bounds; the value is its key in the metadata."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"


class ClientQuotaCallback(Protocol):
    """A plug-in that decides on quotas: entry point `raftctl.client_quota_callbacks` (KIP-257).

    It is called on the event loop for each request that is measured, so it must not block.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        """Take the keys of the node's configuration as they were written."""

    @property
    def is_active(self) -> bool:
        """Whether any client may have a bound; if not, no request is measured."""

    def publish(self, image: MetadataImage) -> None:
        """Take up a newer committed image, and the quotas that it stores."""

    def scope(self, kind: QuotaType, principal: Principal, client_id: str) -> Scope:
        """Return with whom the client shares its quota."""

    def limit(self, kind: QuotaType, scope: Scope) -> float | None:
        """Return the bound of a scope, above 0; None if there is none."""


class StoredQuotas:
    """The quotas of the metadata image, the most specific first; the default callback."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        del config
        self._stored: StoredClientQuotas | None = None
        self._bounds: dict[QuotaType, dict[QuotaEntity, float]] = {kind: {} for kind in QuotaType}

    @property
    def is_active(self) -> bool:
        """Whether any quota of clients is stored."""
        return any(self._bounds.values())

    def publish(self, image: MetadataImage) -> None:
        """Take up the quotas of a newer image."""
        if image.client_quotas is self._stored:
            return
        self._stored = image.client_quotas
        for kind in QuotaType:
            self._bounds[kind] = {
                entity: values[kind.value]
                for entity, values in image.client_quotas.items()
                if kind.value in values
            }

    def scope(self, kind: QuotaType, principal: Principal, client_id: str) -> Scope:
        """Return (user, client id) with what the most specific quota does not name left empty."""
        bounds = self._bounds[kind]
        for entity, scope in _candidates(principal.name, client_id):
            if entity in bounds:
                return scope
        return "", client_id

    def limit(self, kind: QuotaType, scope: Scope) -> float | None:
        """Return the bound of the most specific quota that is of this scope."""
        bounds = self._bounds[kind]
        for entity, found in _candidates(*scope):
            if found == scope and entity in bounds:
                return bounds[entity]
        return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Scope]]:
    """Yield each entity that a client may belong to, the most specific first, with its scope.

    A quota of a default is one for each client that has no other, not one that all share. A client
    without an id has the quotas of its user alone, as with Apache Kafka.
    """
    named, of_all = (_USER, user), (_USER, None)
    if client_id:
        both = (user, client_id)
        client, any_client = (_CLIENT_ID, client_id), (_CLIENT_ID, None)
        if user:
            # The parts of an entity stand in the order of their types.
            yield (client, named), both
            yield (any_client, named), both
            yield (named,), (user, "")
            yield (client, of_all), both
            yield (any_client, of_all), both
            yield (of_all,), (user, "")
        yield (client,), ("", client_id)
        yield (any_client,), ("", client_id)
    elif user:
        yield (named,), (user, "")
        yield (of_all,), (user, "")


def load_callback(name: str, config: Mapping[str, str]) -> ClientQuotaCallback:
    """Make the callback of `client.quota.callback.class`; without a name, `StoredQuotas`.

    ConfigError lists the installed ones if there is none of that name.
    """
    if not name:
        return StoredQuotas(config)
    found = {point.name: point for point in entry_points(group=_CALLBACK_GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"client.quota.callback.class: no plug-in {name!r}; installed: {known}")
    callback: ClientQuotaCallback = found[name].load()(config)
    return callback
