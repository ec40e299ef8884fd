"""Result of a request to the controller, and the check that precedes most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.admin import AdminResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests import ControllerResponse
    from raftctl.metadata.requests.admin import ItemOutcome

    Decision = Callable[[MetadataImage, Any], "ControllerResult"]
    """Decision of one type of request, on the newest image."""


class ControllerResult(NamedTuple):
    """Records to append as one batch, all or none, and the response to send once they commit.

    A tuple, since each request makes one and puts are many.
    """

    records: tuple[Record, ...]
    response: ControllerResponse | Callable[[int], ControllerResponse]
    """The response, or a function that makes it from the offset of the first record."""
    confirm: bool = False
    """True if a response without records waits until this controller has proved that it was still
    active when the request arrived. Without that, a deposed controller would send stale state."""
    lost: ErrorCode = ErrorCode.NOT_CONTROLLER
    """Error of the response if leadership ends before the commit. NOT_CONTROLLER is retriable. For
    a request that is not idempotent use REQUEST_TIMED_OUT: the outcome is unknown."""

    def response_at(self, base_offset: int) -> ControllerResponse:
        """Return the response; `base_offset` is that of the first record."""
        return self.response(base_offset) if callable(self.response) else self.response


def lost_with(records: Sequence[Record]) -> ErrorCode:
    """Return `ControllerResult.lost` of a request that would be refused the second time.

    Records may commit even though leadership is lost. Without records nothing was done, so the
    request may be sent to the next controller.
    """
    return ErrorCode.REQUEST_TIMED_OUT if records else ErrorCode.NOT_CONTROLLER


def admin_result(records: Sequence[Record], outcomes: Sequence[ItemOutcome]) -> ControllerResult:
    """Return the result of an administrative request: an outcome for each of its items."""
    count = len(records)
    return ControllerResult(
        tuple(records),
        lambda base_offset: AdminResponse(
            ErrorCode.NONE, "", tuple(outcomes), base_offset + count - 1
        ),
        lost=lost_with(records),
    )


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> ErrorCode:
    """Return NONE if this is the epoch of the broker's current incarnation.

    Otherwise BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return ErrorCode.NONE if broker.broker_epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH
