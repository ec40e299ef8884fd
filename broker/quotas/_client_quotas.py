"""The quotas of all clients of a broker: what each has used, and how long it must wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.quotas._rates import BY_DEFAULT, SampledRate, TokenBucket, Windows
from broker.quotas._scopes import QuotaType
from broker.quotas._usages import Usages
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.quotas._scopes import ClientQuotaCallback, Scope
    from raftctl.metadata.image import MetadataImage
    from raftctl.security import Principal


class MutationQuota:
    """The quota of one request that creates or deletes partitions (KIP-599)."""

    def __init__(self, bucket: TokenBucket, bound: float, *, strict: bool) -> None:
        """`strict` refuses changes; without, as for older clients, they only lead to a wait."""
        self._bucket = bucket
        self._bound = bound
        self._strict = strict
        self._throttled = False

    def record(self, partitions: int, now_ms: int) -> None:
        """Count partitions that are to be created or deleted.

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if earlier ones have used the quota up; one
        that is larger than what is left is accepted whole, lest it could never be.
        """
        if self._strict and self._bucket.throttle_ms(self._bound, now_ms):
            self._throttled = True
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.take(partitions, self._bound, now_ms)
        self._throttled = not self._strict

    def throttle_ms(self, now_ms: int) -> int:
        """Return how long the client must wait: after a refusal, or without `strict` any excess."""
        return self._bucket.throttle_ms(self._bound, now_ms) if self._throttled else 0


class ClientQuotas:
    """Measures clients against the bounds that the callback has for them.

    Times are any clock's milliseconds.
    """

    def __init__(
        self,
        callback: ClientQuotaCallback,
        windows: Windows = BY_DEFAULT,
        controller_windows: Windows = BY_DEFAULT,
    ) -> None:
        """`controller_windows` are those of changes of topics."""
        self.is_active = callback.is_active
        """Whether any client may have a bound. While not, there is nothing to record."""
        self._callback = callback
        self._windows = windows
        self._rates: dict[QuotaType, Usages[Scope, SampledRate]] = {
            kind: Usages(lambda: SampledRate(windows))
            for kind in (QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.REQUEST)
        }
        self._buckets: Usages[Scope, TokenBucket] = Usages(lambda: TokenBucket(controller_windows))

    def publish(self, image: MetadataImage) -> None:
        """Take up the quotas of a newer image. What was used until now stays counted."""
        self._callback.publish(image)
        self.is_active = self._callback.is_active

    def record(
        self,
        kind: QuotaType,
        principal: Principal,
        client_id: str | None,
        value: float,
        now_ms: int,
    ) -> int:
        """Count what a client has used; return for how many milliseconds it must wait.

        `value` is in bytes, or for REQUEST in hundredths of a second. A negative one takes back.
        """
        found = self._bound(kind, principal, client_id)
        if found is None:
            return 0
        scope, bound = found
        rate = self._rates[kind].of(scope, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        # As in Apache Kafka: time on the loop that is over is not paid for longer than a window.
        return min(throttle_ms, self._windows.size_ms) if kind is QuotaType.REQUEST else throttle_ms

    def fetch_bytes_max(self, principal: Principal, client_id: str | None) -> int | None:
        """Return the most bytes that may ever be fetched at once without a wait; None: any.

        A Fetch that asked for more would wait each time that so much is there, and get nothing.
        """
        found = self._bound(QuotaType.FETCH, principal, client_id)
        if found is None:
            return None
        return int(found[1] * (self._windows.number - 1) * self._windows.size_ms / 1000)

    def mutations(
        self, principal: Principal, client_id: str | None, now_ms: int, *, strict: bool
    ) -> MutationQuota | None:
        """Return the quota for one request that changes topics; None if the client has none."""
        found = self._bound(QuotaType.CONTROLLER_MUTATION, principal, client_id)
        if found is None:
            return None
        scope, bound = found
        return MutationQuota(self._buckets.of(scope, now_ms), bound, strict=strict)

    def _bound(
        self, kind: QuotaType, principal: Principal, client_id: str | None
    ) -> tuple[Scope, float] | None:
        scope = self._callback.scope(kind, principal, client_id or "")
        limit = self._callback.limit(kind, scope)
        return None if limit is None else (scope, limit)
