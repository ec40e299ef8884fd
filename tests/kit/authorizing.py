"""Authorizers for tests: one whose answers are written down, and one with written rules."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

import structlog

from raftctl.metadata.acls import Operation, PatternType, Permission, ResourceType
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from raftctl.security import Action, Principal, Requester, StandardAuthorizer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableMapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.security import Authorizer


class ListedActions:
    """Allows everything but `denied`, and keeps what it was asked."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        log: FilteringBoundLogger | None = None,
        *,
        denied: Collection[Action] = (),
    ) -> None:
        self.config = config or {}
        self.log = log
        self.denied = {action[:3] for action in denied}
        self.asked: list[tuple[Requester, Action]] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Rules of images do not count here."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        self.asked.append((requester, action))
        return action[:3] not in self.denied

    def authorize_prefix(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        self.asked.append((requester, action))
        return not any(
            one[:2] == action[:2] and one[2].startswith(action.resource_name) for one in self.denied
        )

    def authorize_by_resource_type(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True unless some resource of the type is denied."""
        del requester
        return not any(one[:2] == (operation, resource_type) for one in self.denied)


def denying(*denied: Action) -> Authorizer:
    """Return an authorizer that allows all but these actions."""
    return ListedActions(denied=denied)


def rule(text: str) -> AccessControlEntryRecord:
    """Return the rule of `ALLOW User:alice READ TOPIC orders`; a name that ends in ... is a prefix.

    `User:alice@10.0.0.7` is at one host. Equal texts are one entry.
    """
    permission, subject, operation, resource_type, name = text.split(" ", 4)
    principal, _, host = subject.partition("@")
    return AccessControlEntryRecord(
        uuid5(NAMESPACE_OID, text),
        ResourceType[resource_type],
        name.removesuffix("..."),
        PatternType.PREFIXED if name.endswith("...") else PatternType.LITERAL,
        principal,
        host or "*",
        Operation[operation],
        Permission[permission],
    )


class RuledAuthorizer:
    """A StandardAuthorizer with a metadata log of rules, and its audit lines."""

    def __init__(self, *rules: str, **config: str) -> None:
        self.lines: list[dict[str, object]] = []
        self.image = EMPTY_IMAGE
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.authorizer = StandardAuthorizer(keys, self.log(logging.DEBUG))
        self.add(*rules)

    def log(self, level: int) -> FilteringBoundLogger:
        """Return a logger whose events of the level and above become `lines`."""
        log: FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[self._take],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        return log.bind()

    def _take(self, _logger: object, level: str, event: MutableMapping[str, object]) -> str:
        self.lines.append({"level": level, **event})
        raise structlog.DropEvent

    def add(self, *rules: str) -> None:
        """Commit these rules at once, and publish the image."""
        self.commit([rule(text) for text in rules])

    def remove(self, *rules: str) -> None:
        """Remove these rules at once, and publish the image."""
        self.commit([RemoveAccessControlEntryRecord(rule(text).entry_id) for text in rules])

    def commit(self, records: Sequence[Record]) -> None:
        """Publish the image after these records."""
        delta = MetadataDelta(self.image)
        delta.replay_all(records, self.image.offset + 1)
        self.image = delta.apply(self.image.offset + 1 + len(records), 1, 0)
        self.authorizer.publish(delta, self.image)

    def allows(self, text: str) -> bool:
        """Answer `User:alice@10.0.0.7 READ TOPIC orders`; the host may be left out."""
        subject, operation, resource_type, name = text.split(" ", 3)
        action = Action(Operation[operation], ResourceType[resource_type], name)
        return self.authorizer.authorize(requester(subject), action)

    def allows_some(self, text: str) -> bool:
        """Answer `User:alice READ TOPIC`: whether it is allowed on some topic."""
        subject, operation, resource_type = text.split(" ")
        return self.authorizer.authorize_by_resource_type(
            requester(subject), Operation[operation], ResourceType[resource_type]
        )


def requester(text: str) -> Requester:
    """Return the requester of `User:alice@10.0.0.7`."""
    principal, _, host = text.partition("@")
    return Requester(Principal.parse(principal), host or "127.0.0.1")
