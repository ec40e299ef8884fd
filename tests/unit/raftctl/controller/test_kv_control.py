"""Keys and values: what each request does, its versions, and that the open delta is the state."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.controller import ControllerConfig
from raftctl.controller.kv import _kv_control as kv_control
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.image.types import KvEntry
from raftctl.metadata.records import KvRecord
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    NO_VERSION,
    KvCasRequest,
    KvCloseSessionRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvGetResponse,
    KvGuardedWriteRequest,
    KvLockRequest,
    KvLockResponse,
    KvOpenSessionRequest,
    KvPutRequest,
    KvRequest,
    KvUnlockRequest,
    KvWriteResponse,
)
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, Cluster

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage

pytestmark = pytest.mark.req("Q10")

OK = ErrorCode.NONE
UNEXPECTED = ErrorCode.INVALID_UPDATE_VERSION
ABSENT = KvGetResponse(None, NO_VERSION)


def put(cluster: Cluster, key: str, value: bytes) -> int:
    response = cluster.handle(KvPutRequest(key, value))
    assert isinstance(response, KvWriteResponse)
    assert response.error == OK
    return response.version


def get(cluster: Cluster, key: str) -> KvGetResponse:
    response = cluster.handle(KvGetRequest(key))
    assert isinstance(response, KvGetResponse)
    return response


def test_a_put_is_read_back_with_the_offset_as_its_version() -> None:
    cluster = Cluster()
    assert get(cluster, "a") == ABSENT
    version = put(cluster, "a", b"1")
    assert cluster.records[version] == KvRecord("a", b"1")
    assert get(cluster, "a") == KvGetResponse(b"1", version)
    assert get(cluster, "b") == ABSENT


def test_versions_grow_over_all_keys() -> None:
    """So that a version is a fencing token whichever key it comes from."""
    cluster = Cluster()
    versions = [put(cluster, key, b"") for key in "abab"]
    assert versions == sorted(set(versions))
    cluster.handle(KvDeleteRequest("a"))
    assert put(cluster, "a", b"") > versions[-1]


@pytest.mark.parametrize(
    ("expected_version", "expected_value", "error"),
    [
        ("current", None, OK),
        ("current", b"1", OK),
        (ANY_VERSION, b"1", OK),
        ("older", None, UNEXPECTED),
        (NO_VERSION, None, UNEXPECTED),
        ("current", b"2", UNEXPECTED),
        (ANY_VERSION, b"", UNEXPECTED),
    ],
)
def test_cas_of_a_key(
    expected_version: str | int, expected_value: bytes | None, error: ErrorCode
) -> None:
    cluster = Cluster()
    older = put(cluster, "a", b"1")
    current = put(cluster, "a", b"1")
    names = {"current": current, "older": older}
    number = names[expected_version] if isinstance(expected_version, str) else expected_version
    before = len(cluster.records)
    response = cluster.handle(KvCasRequest("a", b"2", number, expected_value))
    assert response == KvWriteResponse(error, current + 1 if error == OK else current)
    assert len(cluster.records) == before + (error == OK)
    assert get(cluster, "a").value == (b"2" if error == OK else b"1")


def test_cas_of_a_key_that_does_not_exist() -> None:
    cluster = Cluster()
    for version in (0, 7):
        response = cluster.handle(KvCasRequest("a", b"1", version))
        assert response == KvWriteResponse(UNEXPECTED, NO_VERSION)
    created = cluster.handle(KvCasRequest("a", b"1", NO_VERSION))
    assert created == KvWriteResponse(OK, len(cluster.records) - 1)
    again = cluster.handle(KvCasRequest("a", b"2", NO_VERSION))
    assert again == KvWriteResponse(UNEXPECTED, len(cluster.records) - 1)


def test_keys_are_removed() -> None:
    cluster = Cluster()
    assert cluster.handle(KvDeleteRequest("a")) == KvWriteResponse(
        ErrorCode.RESOURCE_NOT_FOUND, NO_VERSION
    )
    version = put(cluster, "a", b"1")
    removed = cluster.handle(KvCasRequest("a", None, version))
    assert removed == KvWriteResponse(OK, version + 1)
    assert get(cluster, "a") == ABSENT
    nothing = cluster.handle(KvCasRequest("a", None, NO_VERSION))
    assert nothing == KvWriteResponse(ErrorCode.RESOURCE_NOT_FOUND, NO_VERSION)
    put(cluster, "a", b"2")
    assert cluster.handle(KvDeleteRequest("a")) == KvWriteResponse(OK, version + 3)
    assert "a" not in cluster.image.kv


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (KvPutRequest("", b""), ErrorCode.INVALID_REQUEST),
        (KvGetRequest("k" * (kv_control.KEY_LENGTH_MAX + 1)), ErrorCode.INVALID_REQUEST),
        (KvPutRequest("a", bytes(kv_control.VALUE_BYTES_MAX + 1)), ErrorCode.MESSAGE_TOO_LARGE),
        (KvCasRequest("a", b"", ANY_VERSION), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_requests_are_refused(request_: KvRequest, code: ErrorCode) -> None:
    cluster = Cluster()
    before = len(cluster.records)
    with pytest.raises(KafkaError) as raised:
        cluster.handle(request_)
    assert raised.value.code == code
    assert len(cluster.records) == before


def test_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_control, "ENTRIES_MAX", 2)
    cluster = Cluster()
    put(cluster, "a", b"")
    put(cluster, "b", b"")
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        put(cluster, "c", b"")
    put(cluster, "b", b"1")
    cluster.handle(KvDeleteRequest("a"))
    cluster.controller.seal()
    put(cluster, "c", b"")


def test_answers_that_write_nothing_are_confirmed_and_writes_are_not_repeated() -> None:
    cluster = Cluster()
    controller = cluster.controller
    reads: list[KvRequest] = [
        KvGetRequest("a"),
        KvCasRequest("a", b"", 3),
        KvDeleteRequest("a"),
        KvCasRequest("a", None, NO_VERSION),
    ]
    for request in reads:
        result = controller.handle(request, 0)
        assert (result.records, result.confirm) == ((), True)
        assert result.lost == ErrorCode.NOT_CONTROLLER
    written = controller.handle(KvPutRequest("a", b""), 0)
    assert (len(written.records), written.confirm) == (1, False)
    assert written.lost == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.req("C1")
def test_writes_gather_in_one_image_and_are_rolled_back_with_it() -> None:
    cluster = Cluster()
    cluster.controller.committed(cluster.image.offset)
    before = cluster.controller.committed_image
    first = put(cluster, "a", b"1")
    last = put(cluster, "a", b"2")
    assert cluster.controller.committed(first) == []
    ((delta, image),) = cluster.controller.committed(last)
    assert delta.image is before
    assert delta.changed_kv == {"a": KvEntry(b"2", last)}
    assert image.kv["a"] == KvEntry(b"2", last)
    put(cluster, "a", b"3")
    cluster.controller.renounce()
    assert cluster.image is image


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=2)), max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_an_image_written_as_records_keeps_values_and_versions(
    changes: list[tuple[str, bytes | None]], seals: list[bool]
) -> None:
    cluster = Cluster()
    model: dict[str, KvEntry] = {}
    for (key, value), seal in zip(changes, seals, strict=False):
        if value is not None:
            model[key] = KvEntry(value, put(cluster, key, value))
        else:
            cluster.handle(KvDeleteRequest(key))
            model.pop(key, None)
        if seal:
            cluster.controller.seal()
    image = cluster.image
    assert dict(image.kv.items()) == model
    assert copy(image).kv == image.kv


def copy(image: MetadataImage) -> MetadataImage:
    delta = MetadataDelta.between_empty_and(image)
    assert delta.image is EMPTY_IMAGE
    return delta.apply(image.offset, image.epoch, image.timestamp_ms)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "a", "b", "k" * kv_control.KEY_LENGTH_MAX, "k" * 1025]),
            st.sampled_from([b"", b"1", bytes(kv_control.VALUE_BYTES_MAX + 1)]),
        ),
        max_size=8,
    )
)
def test_puts_together_come_to_what_they_come_to_one_by_one(puts: list[tuple[str, bytes]]) -> None:
    requests = [KvPutRequest(key, value) for key, value in puts]
    together = kv_control.handle_puts(EMPTY_IMAGE, requests)
    assert [_told(outcome) for outcome in together] == [_told(_alone(one)) for one in requests]


def _alone(request: KvPutRequest) -> KvRecord | KafkaError:
    try:
        (record,) = kv_control.handle_kv(EMPTY_IMAGE, request).records
    except KafkaError as error:
        return error
    assert isinstance(record, KvRecord)
    return record


def _told(outcome: KvRecord | KafkaError) -> object:
    return (outcome.code, outcome.message) if isinstance(outcome, KafkaError) else outcome


def test_puts_together_keep_to_the_bound_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_control, "ENTRIES_MAX", 3)
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(KvRecord("a", b"0"), 0)
    requests = [KvPutRequest(key, b"1") for key in ("b", "c", "d", "a")]
    *taken, refused, known = kv_control.handle_puts(delta, requests)
    assert taken == [KvRecord("b", b"1"), KvRecord("c", b"1")]
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert known == KvRecord("a", b"1")


def test_keys_and_values_are_bounded_in_bytes_together() -> None:
    """What takes no more than before is taken, so that there is a way back."""
    config = ControllerConfig(cluster_id=CLUSTER_ID, kv_bytes_max=100)
    cluster = Cluster(config)
    cluster.handle(KvPutRequest("a", b"x" * 59))
    cluster.handle(KvPutRequest("b", b"x" * 39))
    assert cluster.image.kv_bytes == 100
    session = UUID(int=1)
    cluster.handle(KvOpenSessionRequest(session, 10_000))
    for request in (
        KvPutRequest("c", b""),
        KvPutRequest("a", b"x" * 60),
        KvCasRequest("c", b"", -1),
        KvGuardedWriteRequest("c", b"", session_id=session),
    ):
        with pytest.raises(KafkaError, match=r"POLICY_VIOLATION.*kv\.max\.bytes=100"):
            cluster.handle(request)
    together = [KvPutRequest("a", b"y"), KvPutRequest("c", b"12"), KvPutRequest("b", b"x" * 39)]
    taken, refused, same = cluster.controller.handle_puts(together)
    assert isinstance(taken, KvRecord)
    assert isinstance(same, KvRecord)
    assert isinstance(refused, KafkaError), "room that others of the group make is not counted"
    cluster.handle(KvPutRequest("a", b"y"))
    cluster.handle(KvDeleteRequest("b"))
    cluster.handle(KvPutRequest("c", b"x" * 97))
    assert cluster.image.kv_bytes == 100
    delta = MetadataDelta.between_empty_and(cluster.image)
    assert delta.kv_bytes == 100


def test_locks_count_in_the_bound_of_bytes() -> None:
    """A place in a queue is kept in memory by every node, as a key is."""
    config = ControllerConfig(cluster_id=CLUSTER_ID, kv_bytes_max=100)
    cluster = Cluster(config)
    cluster.handle(KvPutRequest("a", b"x" * 59))
    one, other = UUID(int=1), UUID(int=2)
    for session in (one, other):
        cluster.handle(KvOpenSessionRequest(session, 10_000))
    cluster.handle(KvLockRequest("l", one, b"x" * 29))
    assert cluster.image.kv_bytes == 90
    assert MetadataDelta.between_empty_and(cluster.image).kv_bytes == 90
    for request in (KvLockRequest("l", other, b"x" * 10), KvPutRequest("b", b"x" * 10)):
        with pytest.raises(KafkaError, match=r"POLICY_VIOLATION.*kv\.max\.bytes=100"):
            cluster.handle(request)
    again = cluster.handle(KvLockRequest("l", one, b"x" * 29))
    assert again == cluster.handle(KvLockRequest("l", one, b"y" * 90)), "its place takes no more"
    waiting = cluster.handle(KvLockRequest("l", other, b"x" * 9))
    assert isinstance(waiting, KvLockResponse)
    assert cluster.image.kv_bytes == 100
    cluster.handle(KvCloseSessionRequest(one))
    cluster.handle(KvUnlockRequest("l", waiting.token))
    assert cluster.image.kv_bytes == 60
