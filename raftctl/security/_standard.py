"""StandardAuthorizer: it decides by the rules of the image, as Apache Kafka's does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError, invariant
from raftctl.security._principal import Principal
from raftctl.security._rules import Decision, RuleIndex

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from immutables import Map
    from structlog.typing import FilteringBoundLogger

    from raftctl.metadata.acls import Operation, ResourceType
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import AccessControlEntryRecord
    from raftctl.security._principal import Action, Requester

SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
DECISIONS_MAX = 16_384
"""Decisions that are kept; one more drops all. To drop them takes a few milliseconds, in which the
node does nothing else."""
ANY_NAME = "hardcode"
"""Name of a resource that is asked for when a question names none. Apache Kafka's own, so that a
rule which happens to match it has the same effect."""

_SUPER_USER = Decision(True, "super user")
_NO_IMAGE = Decision(False, "no metadata yet")
_BY_DEFAULT = {
    False: Decision(False, "no rule for the resource"),
    True: Decision(True, f"no rule for the resource, and {ALLOW_EVERYONE}"),
}
_NOTHING_OF_TYPE = Decision(False, "no rule allows it on any resource of the type")


class StandardAuthorizer:
    """Decides by the rules of the image; see `raftctl.security.Authorizer`.

    Rules change in `publish`, which runs to its end between two questions. So no question is
    answered by half of a change, and none by a decision that is older than the rules.
    """

    def __init__(self, config: Mapping[str, str], log: FilteringBoundLogger) -> None:
        self._super_users = _super_users(config.get(SUPER_USERS, ""))
        self._by_default = _BY_DEFAULT[_allows_everyone(config.get(ALLOW_EVERYONE, ""))]
        self._log = log
        self._rules: Map[UUID, AccessControlEntryRecord] | None = None
        """Those that the index has; None before the first image."""
        self._index = RuleIndex()
        self._decisions: dict[tuple[Requester, Action], Decision] = {}
        self._by_type: dict[tuple[Requester, int, int], Decision] = {}
        self._by_prefix: dict[tuple[Requester, Action], Decision] = {}

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take up the rules that have changed; those of a delta from elsewhere are read whole."""
        before, self._rules = self._rules, image.acls
        if before is image.acls:
            return
        if before is delta.image.acls:
            self._change(before, delta.changed_acls)
        else:
            self._index = RuleIndex(image.acls.values())
        self._decisions, self._by_type, self._by_prefix = {}, {}, {}
        invariant(len(self._index) == len(image.acls), "the index has the rules of the image")

    def _change(
        self,
        before: Map[UUID, AccessControlEntryRecord],
        changes: Mapping[UUID, AccessControlEntryRecord | None],
    ) -> None:
        for entry_id, rule in changes.items():
            known = before.get(entry_id)
            if known is not None:
                self._index.remove(known)
            if rule is not None:
                self._index.add(rule)

    def authorize(self, requester: Requester, action: Action) -> bool:
        """Return whether the requester may do the action, and write it to the audit log."""
        decision = self._decisions.get((requester, action))
        if decision is None:
            decision = self._decide(requester, *action[:3])
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[requester, action] = decision
        if self._is_logged(action, decision):
            self._write(requester, *action[:2], f"LITERAL:{action.resource_name}", decision)
        return decision.allowed

    def authorize_prefix(self, requester: Requester, action: Action) -> bool:
        """Return whether the requester may do it on all resources with a prefix, the name."""
        decision = self._by_prefix.get((requester, action))
        if decision is None:
            decision = self._decide_prefix(requester, action)
            if len(self._by_prefix) >= DECISIONS_MAX:
                self._by_prefix.clear()
            self._by_prefix[requester, action] = decision
        if self._is_logged(action, decision):
            self._write(requester, *action[:2], f"PREFIXED:{action.resource_name}", decision)
        return decision.allowed

    def _is_logged(self, action: Action, decision: Decision) -> bool:
        if decision.allowed:
            return action.log_if_allowed and self._has_level_of(decision)
        return self._has_level_of(decision) and action.log_if_denied

    def _has_level_of(self, decision: Decision) -> bool:
        """Whether the logger's level, which may change at any time, is that of such decisions."""
        return self._log.is_enabled_for(logging.DEBUG if decision.allowed else logging.INFO)

    def _decide_prefix(self, requester: Requester, action: Action) -> Decision:
        principal, host = requester
        if principal in self._super_users:
            return _SUPER_USER
        if self._rules is None:
            return _NO_IMAGE
        found = self._index.decide_prefix(str(principal), host, *action[:3])
        return self._by_default if found is None else found

    def _decide(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        principal, host = requester
        if principal in self._super_users:
            return _SUPER_USER
        if self._rules is None:
            return _NO_IMAGE
        found = self._index.decide(str(principal), host, operation, resource_type, name)
        return self._by_default if found is None else found

    def authorize_by_resource_type(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether the requester may do the operation on some resource of the type."""
        key = (requester, operation, resource_type)
        decision = self._by_type.get(key)
        if decision is None:
            decision = self._decide_by_type(*key)
            if len(self._by_type) >= DECISIONS_MAX:
                self._by_type.clear()
            self._by_type[key] = decision
        if self._has_level_of(decision):
            self._write(requester, operation, resource_type, None, decision)
        return decision.allowed

    def _decide_by_type(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> Decision:
        """Decide as Apache Kafka's default method does."""
        decision = self._decide(requester, operation, resource_type, ANY_NAME)
        if decision.allowed or self._rules is None:
            return decision
        principal, host = requester
        match = self._index.decide_by_type(str(principal), host, operation, resource_type)
        return _NOTHING_OF_TYPE if match is None else Decision(True, match)

    def _write(
        self,
        requester: Requester,
        operation: Operation,
        resource_type: ResourceType,
        pattern: str | None,
        decision: Decision,
    ) -> None:
        """Write a line of the audit log; a pattern of None is some resource of the type."""
        self._log.log(
            logging.DEBUG if decision.allowed else logging.INFO,
            "access_allowed" if decision.allowed else "access_denied",
            principal=str(requester.principal),
            host=requester.host,
            operation=operation.name,
            resource=f"some {resource_type.name}"
            if pattern is None
            else f"{resource_type.name}:{pattern}",
            because=str(decision.because),
        )


def _super_users(text: str) -> frozenset[Principal]:
    try:
        return frozenset(Principal.parse(one) for part in text.split(";") if (one := part.strip()))
    except ValueError as error:
        raise ConfigError(f"{SUPER_USERS}: {error}; several are separated by ;") from error


def _allows_everyone(text: str) -> bool:
    given = text.strip().lower()
    if given not in ("", "false", "true"):
        raise ConfigError(f"{ALLOW_EVERYONE} must be true or false, not {text!r}")
    return given == "true"
