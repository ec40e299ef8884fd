"""Keys and values on the metadata log: get, put, compare-and-set, delete (row Q10).

The version of a key is the offset of the record that set it. Offsets are one total order over all
keys and all controllers, so a version serves as a fencing token: a greater one is later.

Responses without a write (of a get, or of an expectation that does not hold) are confirmed. A
controller that was deposed without noticing would otherwise return stale state. A write is never
repeated on the caller's behalf: a put that is applied a second time later undoes another client's.

Source: the guarantees of ZooKeeper's and etcd's compare-and-set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.codec import Columns, columns_of
from raftctl.controller._config import KV_BYTES_MAX
from raftctl.controller._result import ControllerResult
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image.types import kv_size
from raftctl.metadata.records import KvRecord
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    NO_VERSION,
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvGetResponse,
    KvPutRequest,
    KvRequest,
    KvWriteResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.image.types import KvEntry

KEY_LENGTH_MAX = 1024
"""Characters of a key."""
VALUE_BYTES_MAX = 1024 * 1024
ENTRIES_MAX = 1_000_000
"""Number of keys; every node of the cluster keeps all of them in memory."""


def handle_kv(
    state: MetadataImage | MetadataDelta, request: KvRequest, bytes_max: int = KV_BYTES_MAX
) -> ControllerResult:
    """Decide a request on the newest state.

    Raises KafkaError: INVALID_REQUEST for a key that is empty or too long, or for an expectation
    without version and value; MESSAGE_TOO_LARGE for the value; POLICY_VIOLATION for one key too
    many, or for more than `bytes_max` of keys and values. A write that needs no more room than
    before is never refused, so a full store can be emptied.
    """
    key = request.key
    check_key(key)
    match request:
        case KvPutRequest():
            return _set(state, key, request.value, bytes_max)
        case KvGetRequest():
            entry = state.kv_entry(key)
            value, version = (None, NO_VERSION) if entry is None else entry
            return ControllerResult((), KvGetResponse(value, version), confirm=True)
        case KvCasRequest():
            return _compare_and_set(state, request, bytes_max)
        case KvDeleteRequest():
            if state.kv_entry(key) is None:
                return _refused(ErrorCode.RESOURCE_NOT_FOUND, None)
            return _written(KvRecord(key, None))


def handle_puts(
    state: MetadataImage | MetadataDelta,
    requests: Sequence[KvPutRequest],
    bytes_max: int = KV_BYTES_MAX,
) -> Sequence[KvRecord | KafkaError]:
    """Decide many puts as `handle_kv` would; return the record or the error of each, in order.

    Most writes are puts, and decided together they cost a fraction: without an error the records
    are `Columns`. Each counts as a new key for those after it, so a few keys and bytes below the
    bounds may stay unused.
    """
    room, bytes_room = ENTRIES_MAX - state.kv_count, bytes_max - state.kv_bytes
    keys, values = columns_of(KvPutRequest, requests)
    records = Columns(KvRecord, (keys, values, [-1] * len(requests)))
    size = sum(map(len, keys)) + sum(map(len, values))
    if len(requests) <= room and size <= bytes_room and _are_sound(keys, values):
        return records
    decided: list[KvRecord | KafkaError] = [*records]
    for before, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            check_key(key)
            _check_value(state, key, value, room - before)
            bytes_room -= _check_room(state, key, value, bytes_room, bytes_max)
        except KafkaError as error:
            decided[before] = error
    return decided


def _check_room(
    state: MetadataImage | MetadataDelta, key: str, value: bytes, room: int, bytes_max: int
) -> int:
    """Return the bytes that the key needs in addition; KafkaError if there is no room."""
    entry = state.kv_entry(key)
    more = kv_size(key, value) - kv_size(key, None if entry is None else entry.value)
    check_room(more, room, bytes_max)
    return max(0, more)


def check_room(more: int, room: int, bytes_max: int) -> None:
    """Raise KafkaError(POLICY_VIOLATION) if `more` bytes do not fit into `room`."""
    if more > max(0, room):
        why = f"keys, locks and values would take more than kv.max.bytes={bytes_max}: delete some"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)


def _are_sound(keys: Sequence[str], values: Sequence[bytes]) -> bool:
    lengths = set(map(len, keys))
    all_keys = 0 not in lengths and max(lengths, default=0) <= KEY_LENGTH_MAX
    return all_keys and max(map(len, values), default=0) <= VALUE_BYTES_MAX


def check_key(key: str, field: str = "key") -> None:
    """Raise KafkaError(INVALID_REQUEST) for a name that is empty or too long."""
    if not 0 < len(key) <= KEY_LENGTH_MAX:
        why = f"a {field} has 1 to {KEY_LENGTH_MAX} characters"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _check_value(state: MetadataImage | MetadataDelta, key: str, value: bytes, room: int) -> None:
    if len(value) > VALUE_BYTES_MAX:
        why = f"a value has at most {VALUE_BYTES_MAX} bytes"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    if room <= 0 and state.kv_entry(key) is None:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {ENTRIES_MAX} keys already")


def _set(
    state: MetadataImage | MetadataDelta, key: str, value: bytes, bytes_max: int
) -> ControllerResult:
    _check_value(state, key, value, ENTRIES_MAX - state.kv_count)
    _check_room(state, key, value, bytes_max - state.kv_bytes, bytes_max)
    return _written(KvRecord(key, value))


def _compare_and_set(
    state: MetadataImage | MetadataDelta, request: KvCasRequest, bytes_max: int
) -> ControllerResult:
    entry = state.kv_entry(request.key)
    if request.expected_version == ANY_VERSION and request.expected_value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a version or a value must be expected")
    if not _is_expected(entry, request):
        return _refused(ErrorCode.INVALID_UPDATE_VERSION, entry)
    if request.value is not None:
        return _set(state, request.key, request.value, bytes_max)
    if entry is None:
        return _refused(ErrorCode.RESOURCE_NOT_FOUND, None)
    return _written(KvRecord(request.key, None))


def _is_expected(entry: KvEntry | None, request: KvCasRequest) -> bool:
    value, version = (None, NO_VERSION) if entry is None else entry
    if request.expected_version not in (ANY_VERSION, version):
        return False
    return request.expected_value is None or request.expected_value == value


def _written(record: KvRecord) -> ControllerResult:
    return ControllerResult((record,), _write_response, lost=ErrorCode.REQUEST_TIMED_OUT)


def _write_response(offset: int) -> KvWriteResponse:
    return KvWriteResponse(ErrorCode.NONE, offset)


def _refused(error: ErrorCode, entry: KvEntry | None) -> ControllerResult:
    version = NO_VERSION if entry is None else entry.version
    return ControllerResult((), KvWriteResponse(error, version), confirm=True)
