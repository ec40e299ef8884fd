"""The client instances that are known, and whether each may ask or push now. Pure.

Source: Apache Kafka's ClientMetricsManager and ClientMetricsInstance, also for the order of the
checks.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import crc32c

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.ids import ZERO_UUID, uuid_text
from raftctl.metadata.configs.client_metrics import ALL_METRICS, INTERVAL_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from raftctl.metadata.configs.client_metrics import Subscription

INSTANCES_MAX = 16_384
"""Of the least recently seen ones more are forgotten."""
EXPIRY_MS_MIN = 60_000
_EXPIRY_INTERVALS = 3
_NO_CLIENT = (ZERO_UUID, UUID(int=1))
"""Ids that no client has."""
_ASKS_AT_ONCE = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Refusals of a push after which the client may ask before the interval is over."""
_CODECS = range(5)
_UNKNOWN = "unknown"
_LABEL_MAX = 64
"""Characters of a label."""
_NEVER = -(2**62)


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What is known of a client by its connection and its request."""

    client_id: str | None
    software_name: str
    """Empty if the client has not said it."""
    software_version: str
    address: str
    port: int

    @property
    def software(self) -> tuple[str, str]:
        """Name and version, as labels of metrics have them."""
        name, version = self.software_name or _UNKNOWN, self.software_version or _UNKNOWN
        return name[:_LABEL_MAX], version[:_LABEL_MAX]

    def attributes(self, instance_id: UUID) -> dict[str, str | None]:
        """Return what patterns match, by name."""
        return {
            "client_instance_id": uuid_text(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name or _UNKNOWN,
            "client_software_version": self.software_version or _UNKNOWN,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


@dataclass(frozen=True, slots=True)
class Push:
    """A request that brings metrics."""

    instance_id: UUID | None
    subscription_id: int
    terminating: bool
    """Whether it is the client's last."""
    codec: int
    metrics: bytes
    """Packed by the codec; may be empty."""


@dataclass(slots=True)
class Instance:
    """One client instance, and what it is subscribed to."""

    id: UUID
    facts: ClientFacts
    """Of the request that made it known."""
    subscription_id: int
    metrics: tuple[str, ...]
    """Prefixes of names; `ALL_METRICS` alone is every name."""
    interval_ms: int
    generation: int
    """Of the subscriptions that this is made from."""
    expires_ms: int = 0
    asked_ms: int = _NEVER
    pushed_ms: int = _NEVER
    is_terminating: bool = False
    error: ErrorCode = ErrorCode.NONE
    """Of its last push."""

    def take_ask(self, now_ms: int) -> bool:
        """Return whether it may ask now; if so, note that it did."""
        if now_ms - max(self.asked_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def take_push(self, now_ms: int) -> bool:
        """Return whether it may push now; if so, note that it did.

        The first push after a question comes at a random part of the interval.
        """
        is_first = self.asked_ms > self.pushed_ms
        if not is_first and now_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class Instances:
    """The client instances of one broker. Times are milliseconds of a clock that never jumps."""

    def __init__(
        self,
        new_id: Callable[[], UUID],
        forgotten: Callable[[UUID], None],
        metrics_bytes_max: int,
        instances_max: int = INSTANCES_MAX,
    ) -> None:
        """`forgotten` is called with the id of each instance that is not known any more."""
        self._new_id = new_id
        self._forgotten = forgotten
        self._metrics_bytes_max = metrics_bytes_max
        self._instances_max = instances_max
        self._subscriptions: dict[str, Subscription] = {}
        self._generation = 0
        self._known: OrderedDict[UUID, Instance] = OrderedDict()
        """The least recently seen first."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, instance_id: UUID) -> bool:
        return instance_id in self._known

    def subscribe(self, changed: Mapping[str, Subscription | None]) -> None:
        """Take up subscriptions by name; None: there is none of the name any more."""
        for name, subscription in changed.items():
            if subscription is None:
                self._subscriptions.pop(name, None)
            else:
                self._subscriptions[name] = subscription
        self._generation += 1

    def ask(self, instance_id: UUID | None, facts: ClientFacts, now_ms: int) -> Instance:
        """Return what a client shall push; one without an id gets one.

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if it asks before its interval is over.
        """
        if instance_id is None or instance_id == ZERO_UUID:
            instance_id = self._unused_id()
        instance = self._instance(instance_id, facts, now_ms)
        if not instance.take_ask(now_ms) and instance.error not in _ASKS_AT_ONCE:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.error = ErrorCode.NONE
        return instance

    def push(self, push: Push, facts: ClientFacts, now_ms: int) -> Instance:
        """Return the instance, if it may push this.

        Raises KafkaError: INVALID_REQUEST without an id, or after it has said that it terminates;
        THROTTLING_QUOTA_EXCEEDED before its interval is over; UNKNOWN_SUBSCRIPTION_ID if it has to
        ask first; UNSUPPORTED_COMPRESSION_TYPE; TELEMETRY_TOO_LARGE.
        """
        if push.instance_id is None or push.instance_id in _NO_CLIENT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "there is no client instance of this id")
        instance = self._instance(push.instance_id, facts, now_ms)
        try:
            self._check(instance, push, now_ms)
        except KafkaError as error:
            instance.error = error.code
            raise
        finally:
            instance.is_terminating = push.terminating
        return instance

    def expire(self, now_ms: int) -> None:
        """Forget those that have been silent for too long."""
        for instance in [one for one in self._known.values() if one.expires_ms <= now_ms]:
            self._forget(instance.id)

    def invariants(self) -> None:
        """Check the bound, and that each instance stands under its id."""
        invariant(len(self._known) <= self._instances_max, "instances are bounded")
        invariant(all(id_ == one.id for id_, one in self._known.items()), "an id is its own")

    def _check(self, instance: Instance, push: Push, now_ms: int) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has said that it terminates")
        if not instance.take_push(now_ms) and not push.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if push.subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec not in _CODECS:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > self._metrics_bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _unused_id(self) -> UUID:
        found = self._new_id()
        while found in self._known or found in _NO_CLIENT:
            found = self._new_id()
        return found

    def _instance(self, instance_id: UUID, facts: ClientFacts, now_ms: int) -> Instance:
        """Return the instance as it is subscribed now; a new one if it is not known."""
        instance = self._known.get(instance_id)
        if instance is None or instance.generation != self._generation:
            if instance is not None:
                facts = instance.facts
            instance = self._known[instance_id] = self._subscribed(instance_id, facts)
        self._known.move_to_end(instance_id)
        lasts_ms = max(EXPIRY_MS_MIN, _EXPIRY_INTERVALS * instance.interval_ms)
        instance.expires_ms = now_ms + lasts_ms
        while len(self._known) > self._instances_max:
            self._forget(next(iter(self._known)))
        return instance

    def _forget(self, instance_id: UUID) -> None:
        del self._known[instance_id]
        self._forgotten(instance_id)

    def _subscribed(self, instance_id: UUID, facts: ClientFacts) -> Instance:
        attributes = facts.attributes(instance_id)
        found = [one for one in self._subscriptions.values() if one.matches(attributes)]
        names = {name for one in found for name in one.metrics}
        metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
        interval_ms = min([INTERVAL_MS, *(one.interval_ms for one in found)])
        number = subscription_id(metrics, interval_ms, instance_id)
        return Instance(instance_id, facts, number, metrics, interval_ms, self._generation)


def subscription_id(metrics: Iterable[str], interval_ms: int, instance_id: UUID) -> int:
    """Return the number by which a client shows what it is to push.

    CRC32C of the subscription as Java writes it, XORed with Java's hash of the instance's id.
    """
    written = f"[{', '.join(metrics)}]{interval_ms}"
    folded = (instance_id.int >> 64) ^ (instance_id.int & (1 << 64) - 1)
    number = crc32c.crc32c(written.encode()) ^ (folded >> 32) ^ (folded & 0xFFFF_FFFF)
    return number - (1 << 32) if number >= 1 << 31 else number
