"""Sessions, ephemeral keys, locks and fencing, one rule a test and all against a model."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.controller.kv import _kv_coordination as kv_coordination
from raftctl.controller.kv._kv_coordination import KEYS_MAX, LOCK_VALUE_BYTES_MAX
from raftctl.errors import ErrorCode, InvariantViolation, KafkaError
from raftctl.metadata.records import (
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
)
from raftctl.metadata.requests.kv import (
    NO_TOKEN,
    NO_VERSION,
    CoordinationRequest,
    KvBarrierRequest,
    KvBarrierResponse,
    KvCloseSessionRequest,
    KvDeleteRequest,
    KvGuardedWriteRequest,
    KvHeartbeatRequest,
    KvLockRequest,
    KvLockResponse,
    KvOpenSessionRequest,
    KvPutRequest,
    KvSessionResponse,
    KvUnlockRequest,
    KvWriteResponse,
)
from tests.unit.raftctl.controller.cluster import Cluster

if TYPE_CHECKING:
    from raftctl.metadata.records import Record

pytestmark = pytest.mark.req("Q10")

A, B, C = (UUID(int=number) for number in (1, 2, 3))
TIMEOUT_MS = 5_000
OK = ErrorCode.NONE
OVER = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_MEMBER_EPOCH


@pytest.fixture
def cluster() -> Cluster:
    """With two open sessions."""
    one = Cluster()
    for session in (A, B):
        assert one.handle(KvOpenSessionRequest(session, TIMEOUT_MS)) == alive()
    return one


def alive(timeout_ms: int = TIMEOUT_MS) -> KvSessionResponse:
    return KvSessionResponse(OK, timeout_ms)


def beat(cluster: Cluster, session: UUID) -> ErrorCode:
    response = cluster.handle(KvHeartbeatRequest(session))
    assert isinstance(response, KvSessionResponse)
    return response.error


def write(cluster: Cluster, request: KvGuardedWriteRequest) -> KvWriteResponse:
    response = cluster.handle(request)
    assert isinstance(response, KvWriteResponse)
    return response


def lock(cluster: Cluster, session: UUID, name: str = "l") -> KvLockResponse:
    response = cluster.handle(KvLockRequest(name, session, b"me"))
    assert isinstance(response, KvLockResponse)
    return response


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_lives_as_long_as_it_is_heard_of(cluster: Cluster) -> None:
    for now_ms in range(4_000, 20_000, 4_000):
        cluster.tick(now_ms)
        assert beat(cluster, A) == OK
    assert list(cluster.image.coordination.sessions) == [A], "the other one was silent"
    assert beat(cluster, B) == OVER


def test_a_session_ends_at_its_timeout_by_a_record(cluster: Cluster) -> None:
    assert cluster.tick(TIMEOUT_MS - 1) == []
    assert beat(cluster, B) == OK
    assert cluster.tick(TIMEOUT_MS) == [RemoveKvSessionRecord(A)]


def test_opening_again_is_the_same_as_once(cluster: Cluster) -> None:
    before = len(cluster.records)
    cluster.tick(4_000)
    assert cluster.handle(KvOpenSessionRequest(A, 9_000)) == alive()
    assert len(cluster.records) == before
    assert cluster.tick(TIMEOUT_MS) == [RemoveKvSessionRecord(B)], "it counts as a heartbeat"


def test_a_new_active_controller_gives_every_session_a_full_timeout(cluster: Cluster) -> None:
    """Heartbeats that the last one has answered are not known to it."""
    cluster.now_ms = 100 * TIMEOUT_MS
    image = cluster.image
    cluster.controller.renounce()
    cluster.claim(image)
    assert cluster.tick(cluster.now_ms + TIMEOUT_MS - 1) == []
    assert len(cluster.tick(cluster.now_ms + 1)) == 2


def test_a_controller_that_was_held_up_expires_nobody(cluster: Cluster) -> None:
    """Their heartbeats wait unread."""
    assert cluster.late_tick(TIMEOUT_MS + 1) == []
    assert cluster.tick(2 * TIMEOUT_MS) == []
    assert len(cluster.tick(2 * TIMEOUT_MS + 1)) == 2


def test_sessions_expire_in_slices(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_coordination, "EXPIRY_RECORDS_MAX", 1)
    cluster.tick(TIMEOUT_MS - 1)
    assert cluster.late_tick(TIMEOUT_MS) == [RemoveKvSessionRecord(A)]
    deadline_ms = cluster.controller.deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= TIMEOUT_MS, "the rest is due at once"
    assert cluster.late_tick(TIMEOUT_MS) == [RemoveKvSessionRecord(B)]
    assert cluster.late_tick(TIMEOUT_MS) == []


def test_nothing_is_due_without_sessions(cluster: Cluster) -> None:
    for session in (A, B):
        assert cluster.handle(KvCloseSessionRequest(session)) == alive()
    assert cluster.controller.deadline_ms() is None
    assert cluster.handle(KvCloseSessionRequest(A)) == KvSessionResponse(OVER)


def test_a_session_that_was_rolled_back_expires_without_a_record(cluster: Cluster) -> None:
    cluster.controller.handle(KvOpenSessionRequest(C, 1_000), 0)  # and nothing was appended
    assert cluster.tick(2_000) == []
    assert beat(cluster, C) == OVER


# --- ephemeral keys -------------------------------------------------------------------------------


def test_an_ephemeral_key_goes_in_the_batch_that_ends_its_session(cluster: Cluster) -> None:
    version = write(cluster, KvGuardedWriteRequest("e", b"1", session_id=A)).version
    assert cluster.records[version:] == [KvRecord("e", b"1"), KvOwnerRecord("e", A)]
    cluster.handle(KvPutRequest("stays", b""))
    cluster.tick(4_000)
    beat(cluster, B)
    assert cluster.tick(TIMEOUT_MS) == [KvRecord("e", None), RemoveKvSessionRecord(A)]
    assert sorted(cluster.image.kv) == ["stays"]
    assert not cluster.image.coordination.owners


def test_a_plain_put_leaves_a_key_ephemeral_and_a_removal_does_not(cluster: Cluster) -> None:
    write(cluster, KvGuardedWriteRequest("e", b"1", session_id=A))
    cluster.handle(KvPutRequest("e", b"2"))
    assert cluster.image.coordination.owners["e"] == A
    cluster.handle(KvDeleteRequest("e"))
    cluster.handle(KvPutRequest("e", b"3"))
    assert cluster.handle(KvCloseSessionRequest(A)) == alive()
    assert cluster.image.kv["e"].value == b"3"


def test_a_key_goes_with_the_session_that_bound_it_last(cluster: Cluster) -> None:
    for session in (A, B, B):
        write(cluster, KvGuardedWriteRequest("e", b"", session_id=session))
    cluster.handle(KvCloseSessionRequest(A))
    assert "e" in cluster.image.kv
    cluster.handle(KvCloseSessionRequest(B))
    assert "e" not in cluster.image.kv


def test_a_session_that_is_over_binds_nothing(cluster: Cluster) -> None:
    before = len(cluster.records)
    refused = write(cluster, KvGuardedWriteRequest("e", b"", session_id=C))
    assert refused == KvWriteResponse(OVER, NO_VERSION)
    assert len(cluster.records) == before


def test_a_cas_binds_only_if_it_is_done(cluster: Cluster) -> None:
    absent = KvGuardedWriteRequest("e", b"", NO_VERSION, session_id=A)
    first = write(cluster, absent)
    again = KvGuardedWriteRequest("e", b"", NO_VERSION, session_id=B)
    assert write(cluster, again) == KvWriteResponse(ErrorCode.INVALID_UPDATE_VERSION, first.version)
    assert cluster.image.coordination.owners["e"] == A


# --- locks ----------------------------------------------------------------------------------------


def test_a_lock_goes_from_one_to_the_next_in_the_order_of_the_log(cluster: Cluster) -> None:
    cluster.handle(KvOpenSessionRequest(C, TIMEOUT_MS))
    first, second, third = (lock(cluster, session) for session in (A, B, C))
    assert first.token == first.holder == second.holder == third.holder
    assert first.token < second.token < third.token
    assert lock(cluster, B) == KvLockResponse(OK, second.token, first.token), "it keeps its place"
    given_back = cluster.handle(KvUnlockRequest("l", second.token))
    assert given_back == KvLockResponse(OK, second.token, first.token), "also of who waits"
    released = cluster.handle(KvUnlockRequest("l", first.token))
    assert released == KvLockResponse(OK, first.token, third.token)
    assert lock(cluster, A).token > third.token
    again = cluster.handle(KvUnlockRequest("l", first.token))
    assert again == KvLockResponse(ErrorCode.RESOURCE_NOT_FOUND, NO_TOKEN, third.token)


def test_a_silent_holder_loses_the_lock_and_its_token(cluster: Cluster) -> None:
    old, new = lock(cluster, A).token, lock(cluster, B).token
    assert write(cluster, KvGuardedWriteRequest("k", b"A", lock="l", token=old)).error == OK
    early = write(cluster, KvGuardedWriteRequest("k", b"B", lock="l", token=new))
    assert early == KvWriteResponse(FENCED, old), "it only waits"
    cluster.tick(4_000)
    beat(cluster, B)
    expired = cluster.tick(TIMEOUT_MS)
    assert expired == [RemoveKvLockRecord("l", old), RemoveKvSessionRecord(A)]
    before = len(cluster.records)
    late = write(cluster, KvGuardedWriteRequest("k", b"A", lock="l", token=old))
    assert late == KvWriteResponse(FENCED, new)
    assert len(cluster.records) == before
    assert write(cluster, KvGuardedWriteRequest("k", b"B", lock="l", token=new)).error == OK
    removed = write(cluster, KvGuardedWriteRequest("k", None, lock="l", token=new))
    assert removed.error == OK
    cluster.handle(KvUnlockRequest("l", new))
    nobody = write(cluster, KvGuardedWriteRequest("k", b"", lock="l", token=new))
    assert nobody == KvWriteResponse(FENCED, NO_TOKEN)


def test_a_guarded_cas_needs_both(cluster: Cluster) -> None:
    token = lock(cluster, A).token
    version = write(cluster, KvGuardedWriteRequest("k", b"1", lock="l", token=token)).version
    other = KvGuardedWriteRequest("k", b"2", version - 1, lock="l", token=token)
    assert write(cluster, other).error == ErrorCode.INVALID_UPDATE_VERSION
    good = KvGuardedWriteRequest("k", b"2", version, b"1", lock="l", token=token)
    assert write(cluster, good).error == OK


# --- bounds and bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        (KvOpenSessionRequest(C, 999), ErrorCode.INVALID_SESSION_TIMEOUT, "timeout_ms"),
        (KvOpenSessionRequest(C, 600_001), ErrorCode.INVALID_SESSION_TIMEOUT, "timeout_ms"),
        (KvLockRequest("", A, b""), ErrorCode.INVALID_REQUEST, "lock"),
        (KvUnlockRequest("x" * 1_025, 1), ErrorCode.INVALID_REQUEST, "lock"),
        (
            KvLockRequest("l", A, bytes(LOCK_VALUE_BYTES_MAX + 1)),
            ErrorCode.MESSAGE_TOO_LARGE,
            "value",
        ),
        (KvGuardedWriteRequest("", b"", session_id=A), ErrorCode.INVALID_REQUEST, "key"),
        (KvGuardedWriteRequest("k", None, session_id=A), ErrorCode.INVALID_REQUEST, "session"),
        (KvGuardedWriteRequest("k", b"", lock="l"), ErrorCode.INVALID_REQUEST, "token"),
        (KvGuardedWriteRequest("k", b"", token=3), ErrorCode.INVALID_REQUEST, "lock"),
        (
            KvGuardedWriteRequest("k", bytes(1 << 21), session_id=A),
            ErrorCode.MESSAGE_TOO_LARGE,
            "value",
        ),
    ],
)
def test_bad_requests_are_refused(
    cluster: Cluster, request_: CoordinationRequest, code: ErrorCode, word: str
) -> None:
    before = len(cluster.records)
    with pytest.raises(KafkaError, match=word) as raised:
        cluster.handle(request_)
    assert raised.value.code == code
    assert len(cluster.records) == before


def test_everything_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("SESSIONS_MAX", "KEYS_MAX", "LOCKS_MAX"):
        monkeypatch.setattr(kv_coordination, bound, 2)
    for number in range(2):
        write(cluster, KvGuardedWriteRequest(f"k{number}", b"", session_id=A))
        lock(cluster, A, f"l{number}")
    too_many: list[CoordinationRequest] = [
        KvOpenSessionRequest(C, TIMEOUT_MS),
        KvGuardedWriteRequest("k2", b"", session_id=A),
        KvLockRequest("l2", A, b""),
    ]
    for request in too_many:
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            cluster.handle(request)
    assert write(cluster, KvGuardedWriteRequest("k1", b"", session_id=A)).error == OK
    monkeypatch.setattr(kv_coordination, "WAITERS_MAX", 1)
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        lock(cluster, B, "l0")


def test_the_largest_session_ends_in_one_batch(cluster: Cluster) -> None:
    for number in range(KEYS_MAX):
        write(cluster, KvGuardedWriteRequest(f"k{number}", b"", session_id=A))
    before = len(cluster.records)
    cluster.handle(KvCloseSessionRequest(A))
    assert len(cluster.records) == before + KEYS_MAX + 1
    assert len(cluster.image.kv) == 0


def test_answers_that_write_nothing_are_confirmed(cluster: Cluster) -> None:
    reads: list[CoordinationRequest] = [
        KvHeartbeatRequest(A),
        KvHeartbeatRequest(C),
        KvCloseSessionRequest(C),
        KvOpenSessionRequest(A, TIMEOUT_MS),
        KvLockRequest("l", C, b""),
        KvUnlockRequest("l", 7),
        KvGuardedWriteRequest("k", b"", session_id=C),
        KvGuardedWriteRequest("k", b"", lock="l", token=7),
        KvBarrierRequest(),
    ]
    for request in reads:
        result = cluster.controller.handle(request, 0)
        assert (result.records, result.confirm) == ((), True), request
    assert cluster.handle(KvBarrierRequest()) == KvBarrierResponse(cluster.image.offset)
    once = cluster.controller.handle(KvGuardedWriteRequest("k", b"", session_id=A), 0)
    assert once.lost == ErrorCode.REQUEST_TIMED_OUT, "a write is not repeated unasked"


@pytest.mark.parametrize(
    "record",
    [KvOwnerRecord("k", C), KvLockRecord("l", C, b""), RemoveKvLockRecord("l", 5)],
)
def test_a_record_that_names_what_does_not_exist_stops_the_program(
    cluster: Cluster, record: Record
) -> None:
    with pytest.raises(InvariantViolation):
        cluster.append([record])
