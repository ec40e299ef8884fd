"""What an operation of the controller comes to: records to append and an answer for its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.admin import AdminResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.metadata.records import Record
    from raftctl.metadata.requests.admin import Outcome
    from raftctl.metadata.requests.cluster import ControllerResponse


class ControllerResult(NamedTuple):
    """The records are appended as one batch, all or none; the answer waits until they commit.

    A tuple, since each operation makes one and puts are many.
    """

    records: tuple[Record, ...]
    response: ControllerResponse | Callable[[int], ControllerResponse]
    """The answer, or how to make it once the offset of the first record is known."""
    confirm: bool = False
    """An answer without records waits until this controller is known to have been the active one
    when the request came: without that, one that was deposed unawares tells what was once true."""
    lost: ErrorCode = ErrorCode.NOT_CONTROLLER
    """What the caller is told if leadership ends before the commit. NOT_CONTROLLER invites to ask
    again; who must not do a thing twice is told that nobody knows whether it was done."""

    def response_at(self, base_offset: int) -> ControllerResponse:
        """The answer, given the offset of the first record."""
        return self.response(base_offset) if callable(self.response) else self.response


def lost_with(records: Sequence[Record]) -> ErrorCode:
    """`ControllerResult.lost` where doing a thing twice is refused: these records may commit yet.

    Without any nothing is done, whoever is asked next.
    """
    return ErrorCode.REQUEST_TIMED_OUT if records else ErrorCode.NOT_CONTROLLER


def admin_result(records: Sequence[Record], outcomes: Sequence[Outcome]) -> ControllerResult:
    """The records, and an outcome for each item of the request."""
    count = len(records)
    return ControllerResult(
        tuple(records),
        lambda base_offset: AdminResponse(
            ErrorCode.NONE, "", tuple(outcomes), base_offset + count - 1
        ),
        lost=lost_with(records),
    )
