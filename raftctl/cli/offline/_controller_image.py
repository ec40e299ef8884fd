"""The metadata of a cluster, fetched from a controller over HTTP."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

from raftctl.admin import METADATA_PATH, PROVENANCE_HEADER
from raftctl.codec import CodecError
from raftctl.metadata.codec import RECORD_CODEC
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage


def fetch_image(address: str, timeout_s: float) -> MetadataImage | None:
    """One controller's newest committed image; None if it does not answer with one in time."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        connection.request("GET", METADATA_PATH)
        response = connection.getresponse()
        if response.status != 200:
            return None
        offset, epoch, timestamp_ms = map(int, response.headers[PROVENANCE_HEADER].split())
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in RECORD_CODEC.unpack_all(response.read()):
            delta.replay(record, offset)
        return delta.apply(offset, epoch, timestamp_ms)
    except (OSError, ValueError, CodecError, http.client.HTTPException):
        return None
    finally:
        connection.close()
