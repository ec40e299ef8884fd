"""Producer ids: each is given to one broker, in blocks, and never again (row C10; KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._result import ControllerResult
from raftctl.controller.cluster._cluster_control import check_broker_epoch
from raftctl.errors import ErrorCode
from raftctl.metadata.records import ProducerIdsRecord
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage

PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest, block: int
) -> ControllerResult:
    """Gives the next `block` ids to a broker.

    Errors: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, UNKNOWN_SERVER_ERROR if none are left.
    """
    error = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    if error == ErrorCode.NONE and first + block > PRODUCER_ID_MAX:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    if error != ErrorCode.NONE:
        return ControllerResult((), AllocateProducerIdsResponse(error, -1, 0))
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + block)
    return ControllerResult((record,), AllocateProducerIdsResponse(ErrorCode.NONE, first, block))
