"""The controller's shell: answers wait for commits, reads for confirmation, turns share work."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig, QuorumController
from raftctl.errors import ErrorCode, KafkaError
from raftctl.loader import MetadataLoader
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.records import KvRecord
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    KvCasRequest,
    KvCloseSessionRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvGetResponse,
    KvGuardedWriteRequest,
    KvHeartbeatRequest,
    KvLockRequest,
    KvOpenSessionRequest,
    KvPutRequest,
    KvSessionResponse,
    KvWriteResponse,
)
from raftctl.node import ControllerService
from raftctl.node import _controller_service as controller_service
from tests.unit.raftctl.quorum.parts import ME, Member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.raft.messages import Offset


class Active:
    """An active controller, alone in its quorum; its disk works when told to."""

    def __init__(self) -> None:
        self.member = Member()
        self.published: list[MetadataImage] = []
        self.loader = MetadataLoader(self.member.driver)
        self.service = ControllerService(
            node_id=ME,
            controller=QuorumController(ControllerConfig(), random.Random(1)),
            driver=self.member.driver,
            loader=self.loader,
            runtime=self.member.runtime.as_runtime,
            idle_interval_ms=0,
            fail=self.member.failures.append,
            fence=lambda: None,
        )
        self.loader.add_publisher(self)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.published.append(image)

    def records(self, start: int) -> list[Record]:
        batches = self.member.log.batches(self.member.log.start_offset, 1 << 30)
        return [
            record
            for batch in batches
            if batch.base_offset >= start
            for record in unpack_records(batch.payload, batch.count)
        ]


@pytest.fixture
async def active() -> AsyncIterator[Active]:
    one = Active()
    await one.member.lead()
    await one.member.until(lambda: one.loader.caught_up and one.loader.image.features)
    yield one
    assert one.member.failures == []
    one.service.stop()
    await one.member.stop()


@pytest.mark.req("C1", "Q10")
async def test_a_put_is_answered_when_it_is_on_disk(active: Active) -> None:
    answer = active.service.handle(KvPutRequest("a", b"1"))
    for _ in range(5):
        await active.member.turn()
    assert not answer.done()
    assert "a" not in active.loader.image.kv
    await active.member.until(answer.done)
    version = active.member.log.end_offset - 1
    assert answer.result() == KvWriteResponse(ErrorCode.NONE, version)
    assert active.loader.image.kv["a"] == (b"1", version)


@pytest.mark.req("C1")
async def test_the_first_put_goes_at_once_and_what_follows_in_its_turn_is_one_batch_and_one_image(
    active: Active,
) -> None:
    start, published = active.member.log.end_offset, len(active.published)
    answers = [active.service.handle(KvPutRequest("a", b"%d" % n)) for n in range(5)]
    await active.member.until(answers[-1].done)
    assert [answer.result() for answer in answers] == [
        KvWriteResponse(ErrorCode.NONE, start + n) for n in range(5)
    ]
    assert [batch.count for batch in active.member.log.batches(start, 1 << 20)] == [1, 4]
    assert len(active.published) == published + 2
    assert active.loader.image.offset == start + 4


@pytest.mark.req("Q9", "Q10")
async def test_reads_of_a_turn_share_a_barrier_and_write_nothing(
    active: Active, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, a leader that was deposed unawares would tell what was once true."""
    start = active.member.log.end_offset
    barriers: list[asyncio.Future[Offset]] = []

    def read_barrier() -> asyncio.Future[Offset]:
        barriers.append(asyncio.get_running_loop().create_future())
        return barriers[-1]

    monkeypatch.setattr(active.member.driver, "read_barrier", read_barrier)
    answers = [active.service.handle(KvGetRequest("a")) for _ in range(3)]
    refused = active.service.handle(KvCasRequest("a", b"", 7))
    for _ in range(5):
        await active.member.turn()
    assert len(barriers) == 1
    assert not any(answer.done() for answer in [*answers, refused])
    barriers[0].set_result(start)
    await active.member.turn()
    assert [answer.result() for answer in answers] == [KvGetResponse(None, -1)] * 3
    assert refused.result() == KvWriteResponse(ErrorCode.INVALID_UPDATE_VERSION, -1)
    assert active.member.log.end_offset == start

    deposed = active.service.handle(KvGetRequest("a"))
    await active.member.turn()
    barriers[1].set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await deposed


@pytest.mark.req("Q9")
async def test_a_read_waits_for_what_it_has_seen(active: Active) -> None:
    """It was computed from records that are not committed yet."""
    start = active.member.log.end_offset
    active.service.handle(KvPutRequest("a", b"1"))
    with_it = active.service.handle(KvGetRequest("a"))
    await active.member.turn()
    after_it = active.service.handle(KvGetRequest("a"))
    for _ in range(5):
        await active.member.turn()
    assert not with_it.done()
    assert not after_it.done()
    await active.member.until(after_it.done)
    assert active.records(start) == [KvRecord("a", b"1")]
    assert with_it.result() == after_it.result() == KvGetResponse(b"1", start)


@pytest.mark.req("Q10")
async def test_losing_leadership_leaves_writes_unknown_and_reads_to_others(
    active: Active,
) -> None:
    written = active.service.handle(KvPutRequest("a", b"1"))
    read = active.service.handle(KvGetRequest("a"))
    await active.member.driver.resign()
    for answer, code in [
        (written, ErrorCode.REQUEST_TIMED_OUT),
        (read, ErrorCode.NOT_CONTROLLER),
        (active.service.handle(KvPutRequest("a", b"2")), ErrorCode.NOT_CONTROLLER),
    ]:
        with pytest.raises(KafkaError) as raised:
            await answer
        assert raised.value.code == code


def version_of(answer: asyncio.Future[ControllerResponse]) -> int:
    response = answer.result()
    assert isinstance(response, KvWriteResponse)
    assert response.error is ErrorCode.NONE
    return response.version


@pytest.mark.req("C1", "Q10")
async def test_a_put_that_is_refused_spoils_none_of_its_turn(active: Active) -> None:
    start = active.member.log.end_offset
    first = active.service.handle(KvPutRequest("a", b"1"))
    refused = active.service.handle(KvPutRequest("", b"2"))
    last = active.service.handle(KvPutRequest("b", b"3"))
    await active.member.until(last.done)
    assert (version_of(first), version_of(last)) == (start, start + 1)
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        await refused
    only_refused = active.service.handle(KvPutRequest("", b"2"))
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        await only_refused
    assert active.member.log.end_offset == start + 2


@pytest.mark.req("C1", "Q10")
async def test_groups_of_puts_are_answered_with_one_call_each(active: Active) -> None:
    start = active.member.log.end_offset
    answers: list[list[str]] = []

    def note(group: Sequence[ControllerResponse | KafkaError]) -> None:
        answers.append(
            [f"{one.version - start}" if isinstance(one, KvWriteResponse) else "" for one in group]
        )

    def puts(*keys: str) -> list[KvPutRequest]:
        return [KvPutRequest(key, b"1") for key in keys]

    active.service.answer_puts(puts("a", "", "b"), note)
    active.service.answer_puts(puts("a"), note)
    active.service.answer_puts(puts("", "c"), note)
    await active.member.until(lambda: len(answers) == 3)
    assert answers == [["0", "", "1"], ["2"], ["", "3"]]
    assert active.loader.image.kv["a"].version == start + 2
    active.service.answer_puts(puts("d", ""), note)
    await active.member.turn()
    await active.member.driver.resign()
    active.service.answer_puts(puts("e", "e"), note)
    await active.member.until(lambda: len(answers) == 5)
    assert answers[3:] == [["", ""], ["", ""]]
    assert (active.service.waiting, active.service.waiting_bytes) == (0, 0)


async def test_what_waits_is_bounded_in_bytes_wherever_it_waits(
    active: Active, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Puts that are not decided on, records that are not committed, values to be confirmed."""
    service, member = active.service, active.member
    await member.until(service.handle(KvPutRequest("v", b"x" * 600)).done)
    monkeypatch.setattr(controller_service, "WAITING_BYTES_MAX", 1_000)
    taken = [service.handle(KvPutRequest(key, b"x" * 600)) for key in "ab"]
    refused = [service.handle(KvPutRequest("c", b"")), service.handle(KvGetRequest("a"))]
    for one in refused:
        with pytest.raises(KafkaError, match=r"THROTTLING_QUOTA_EXCEEDED.*nothing was done"):
            await one
    session = UUID(int=1)
    assert isinstance(
        await until_answered(active, KvHeartbeatRequest(session)), KvSessionResponse
    ), "heartbeats are heard all the same"
    await member.until(lambda: all(one.done() for one in taken))
    assert (service.waiting, service.waiting_bytes) == (0, 0)

    barriers: list[asyncio.Future[Offset]] = []

    def read_barrier() -> asyncio.Future[Offset]:
        barriers.append(asyncio.get_running_loop().create_future())
        return barriers[-1]

    monkeypatch.setattr(member.driver, "read_barrier", read_barrier)
    reads = [service.handle(KvGetRequest("v")) for _ in range(3)]
    await member.turn()
    assert [one.done() for one in reads] == [False, False, True]
    assert isinstance(reads[2].exception(), KafkaError)
    barriers[0].set_result(member.driver.high_watermark)
    await member.turn()
    assert [one.done() for one in reads] == [True] * 3
    assert (service.waiting, service.waiting_bytes) == (0, 0)


async def until_answered(active: Active, request: KvHeartbeatRequest) -> ControllerResponse:
    answer = active.service.handle(request)
    await active.member.until(answer.done)
    return answer.result()


async def test_many_answers_are_given_in_many_turns_and_none_is_lost_with_the_lead(
    active: Active, slice_steps: Callable[[int], None]
) -> None:
    slice_steps(3)
    service, member = active.service, active.member
    loop = asyncio.get_running_loop()
    turn = 0
    told: list[tuple[int, ControllerResponse | KafkaError]] = []
    leaving: list[asyncio.Task[None]] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    def reply(answer: ControllerResponse | KafkaError) -> None:
        told.append((turn, answer))
        if len(told) == 6:
            leaving.append(loop.create_task(member.driver.resign()))

    start = member.log.end_offset
    for number in range(60):
        service.answer(KvCasRequest(f"{number}", b"", -1), reply)
    count()
    await member.until(lambda: len(told) == 60)
    await leaving[0]
    turns = [turn for turn, _ in told]
    assert [turns.count(one) for one in sorted(set(turns))][:2] == [3, 3]
    assert not service._controller.active, "it has lost the lead before all were answered"
    assert [answer for _, answer in told] == [
        KvWriteResponse(ErrorCode.NONE, start + n) for n in range(60)
    ], "what is committed has been done"
    assert (service.waiting, service.waiting_bytes) == (0, 0)


@pytest.mark.req("Q10")
@pytest.mark.parametrize(
    "request_",
    [
        KvOpenSessionRequest(UUID(int=2), 2_000),
        KvLockRequest("l", UUID(int=1), b""),
        KvCloseSessionRequest(UUID(int=1)),
        KvGuardedWriteRequest("k", b"", session_id=UUID(int=1)),
        KvPutRequest("k", b""),
        KvCasRequest("k", b"", -1),
        KvDeleteRequest("there"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_what_is_lost_with_the_lead_is_never_told_as_not_done(
    active: Active, request_: ControllerRequest
) -> None:
    """NOT_CONTROLLER means that it was certainly not done, and it may commit yet."""
    service, member = active.service, active.member
    for before in (KvOpenSessionRequest(UUID(int=1), 2_000), KvPutRequest("there", b"")):
        await member.until(service.handle(before).done)
    answer = service.handle(request_)
    await member.turn()
    await member.turn()
    assert not answer.done()
    await member.driver.resign()
    with pytest.raises(KafkaError, match=r"REQUEST_TIMED_OUT.*may take effect or not"):
        await answer


@pytest.mark.req("C1", "Q10")
async def test_what_is_asked_after_a_put_sees_it_also_in_the_same_turn(active: Active) -> None:
    first = active.service.handle(KvPutRequest("a", b"1"))
    swapped = active.service.handle(KvCasRequest("a", b"2", ANY_VERSION, b"1"))
    last = active.service.handle(KvPutRequest("b", b"3"))
    await active.member.until(last.done)
    assert swapped.result() == KvWriteResponse(ErrorCode.NONE, version_of(first) + 1)
    assert version_of(last) == version_of(first) + 2
    assert active.loader.image.kv["a"].value == b"2"


@pytest.mark.req("C1")
async def test_puts_beyond_a_batch_are_appended_in_pieces(
    active: Active, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_service, "PUTS_BYTES_MAX", 100)
    appended: list[int] = []
    append = active.member.driver.append_payload

    def count(payload: bytes, record_count: int, *, alone: bool) -> Offset:
        appended.append(record_count)
        return append(payload, record_count, alone=alone)

    monkeypatch.setattr(active.member.driver, "append_payload", count)
    start = active.member.log.end_offset
    answers = [active.service.handle(KvPutRequest("a", b"x" * 40)) for _ in range(7)]
    await active.member.until(answers[-1].done)
    assert appended == [1, 3, 3]
    assert [version_of(answer) for answer in answers] == list(range(start, start + 7))


@pytest.mark.req("C1", "Q10")
async def test_waiting_puts_are_bounded(active: Active, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_service, "DEFERRED_MAX", 3)
    taken = [active.service.handle(KvPutRequest("a", b"1")) for _ in range(2)]
    await active.member.turn()
    taken.append(active.service.handle(KvPutRequest("a", b"1")))
    refused = active.service.handle(KvPutRequest("a", b"1"))
    with pytest.raises(KafkaError, match="THROTTLING_QUOTA_EXCEEDED"):
        await refused
    beat = active.service.handle(KvHeartbeatRequest(UUID(int=1)))
    await active.member.until(beat.done)
    assert beat.result() == KvSessionResponse(ErrorCode.UNKNOWN_MEMBER_ID), "it is heard"
    await active.member.until(taken[-1].done)
    again = active.service.handle(KvPutRequest("a", b"1"))
    await active.member.until(again.done)
    assert version_of(again) > version_of(taken[-1])


async def test_puts_that_nobody_decided_on_are_for_the_next_controller(active: Active) -> None:
    decided = active.service.handle(KvPutRequest("a", b"1"))
    answer = active.service.handle(KvPutRequest("a", b"1"))
    active.service.stop()
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await decided
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await answer
