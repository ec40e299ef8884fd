"""Random operations of clients, with failovers and snapshots in between, against a simple model."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from raftctl.errors import ErrorCode
from raftctl.metadata.image import MetadataDelta
from raftctl.metadata.requests.kv import (
    NO_TOKEN,
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

SESSIONS = st.sampled_from([UUID(int=number) for number in (1, 2, 3)])
KEYS = st.sampled_from(("a", "b", "c"))
LOCKS = st.sampled_from(("x", "y"))
VALUES = st.binary(max_size=2)
TIMEOUT_MS = 1_000


@dataclass
class Model:
    """What clients may believe, in plain containers."""

    deadlines: dict[UUID, int] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)
    owners: dict[str, UUID] = field(default_factory=dict)
    queues: dict[str, list[tuple[UUID, int]]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    """Of all who ever held a lock, in the order in which they did."""

    def close(self, session: UUID) -> None:
        del self.deadlines[session]
        for key in [key for key, owner in self.owners.items() if owner == session]:
            self.remove(key)
        for lock, queue in self.queues.items():
            self.queues[lock] = [place for place in queue if place[0] != session]

    def remove(self, key: str) -> None:
        self.values.pop(key, None)
        self.owners.pop(key, None)

    def holder(self, lock: str) -> int:
        queue = self.queues.get(lock)
        return queue[0][1] if queue else NO_TOKEN


class KvMachine(RuleBasedStateMachine):
    """The controller and the model do the same."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.model = Model()
        self.held: dict[str, int] = {}

    @rule(session=SESSIONS)
    def open_session(self, session: UUID) -> None:
        response = self.cluster.handle(KvOpenSessionRequest(session, TIMEOUT_MS))
        assert response == KvSessionResponse(ErrorCode.NONE, TIMEOUT_MS)
        self.model.deadlines[session] = self.cluster.now_ms + TIMEOUT_MS

    @rule(session=SESSIONS)
    def heartbeat(self, session: UUID) -> None:
        response = self.cluster.handle(KvHeartbeatRequest(session))
        assert isinstance(response, KvSessionResponse)
        assert (response.error == ErrorCode.NONE) == (session in self.model.deadlines)
        if session in self.model.deadlines:
            self.model.deadlines[session] = self.cluster.now_ms + TIMEOUT_MS

    @rule(session=SESSIONS)
    def close_session(self, session: UUID) -> None:
        response = self.cluster.handle(KvCloseSessionRequest(session))
        assert isinstance(response, KvSessionResponse)
        assert (response.error == ErrorCode.NONE) == (session in self.model.deadlines)
        if session in self.model.deadlines:
            self.model.close(session)

    @rule(passing_ms=st.integers(1, 1_200))
    def time_passes(self, passing_ms: int) -> None:
        self.cluster.tick(self.cluster.now_ms + passing_ms)
        over = [s for s, at_ms in self.model.deadlines.items() if at_ms <= self.cluster.now_ms]
        for session in over:
            self.model.close(session)

    @rule()
    def another_controller_becomes_active(self) -> None:
        """From a snapshot."""
        image = self.cluster.image
        snapshot = MetadataDelta.between_empty_and(image)
        loaded = snapshot.apply(image.offset, image.epoch, image.timestamp_ms)
        assert (loaded.kv, loaded.coordination) == (image.kv, image.coordination)
        self.cluster.controller.renounce()
        self.cluster.claim(loaded)
        for session in self.model.deadlines:
            self.model.deadlines[session] = self.cluster.now_ms + TIMEOUT_MS

    @rule(key=KEYS, value=VALUES)
    def put(self, key: str, value: bytes) -> None:
        self.cluster.handle(KvPutRequest(key, value))
        self.model.values[key] = value

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        response = self.cluster.handle(KvDeleteRequest(key))
        assert isinstance(response, KvWriteResponse)
        assert (response.error == ErrorCode.NONE) == (key in self.model.values)
        self.model.remove(key)

    @rule(key=KEYS, value=VALUES, session=SESSIONS)
    def put_ephemeral(self, key: str, value: bytes, session: UUID) -> None:
        response = self.cluster.handle(KvGuardedWriteRequest(key, value, session_id=session))
        assert isinstance(response, KvWriteResponse)
        assert (response.error == ErrorCode.NONE) == (session in self.model.deadlines)
        if session in self.model.deadlines:
            self.model.values[key] = value
            self.model.owners[key] = session

    @rule(lock=LOCKS, session=SESSIONS)
    def lock(self, lock: str, session: UUID) -> None:
        response = self.cluster.handle(KvLockRequest(lock, session, b""))
        assert isinstance(response, KvLockResponse)
        assert (response.error == ErrorCode.NONE) == (session in self.model.deadlines)
        if response.error != ErrorCode.NONE:
            return
        queue = self.model.queues.setdefault(lock, [])
        if session not in [waiting for waiting, _ in queue]:
            queue.append((session, response.token))
        assert (session, response.token) in queue
        assert response.holder == self.model.holder(lock)

    @rule(lock=LOCKS, place=st.integers(0, 2))
    def unlock(self, lock: str, place: int) -> None:
        queue = self.model.queues.get(lock, [])
        token = queue[place][1] if place < len(queue) else 0
        response = self.cluster.handle(KvUnlockRequest(lock, token))
        assert isinstance(response, KvLockResponse)
        assert (response.error == ErrorCode.NONE) == (place < len(queue))
        if place < len(queue):
            del queue[place]
        assert response.holder == self.model.holder(lock)

    @rule(lock=LOCKS, key=KEYS, value=VALUES, back=st.integers(0, 3))
    def put_guarded(self, lock: str, key: str, value: bytes, back: int) -> None:
        """With the newest token that ever held a lock, or an older one."""
        token = self.model.tokens[-1 - back] if back < len(self.model.tokens) else 0
        request = KvGuardedWriteRequest(key, value, lock=lock, token=token)
        response = self.cluster.handle(request)
        assert isinstance(response, KvWriteResponse)
        if token == self.model.holder(lock):
            assert response.error == ErrorCode.NONE
            self.model.values[key] = value
        else:
            assert response == KvWriteResponse(
                ErrorCode.FENCED_MEMBER_EPOCH, self.model.holder(lock)
            )

    @invariant()
    def they_agree(self) -> None:
        image = self.cluster.image
        assert {key: entry.value for key, entry in image.kv.items()} == self.model.values
        coordination = image.coordination
        assert sorted(coordination.sessions) == sorted(self.model.deadlines)
        assert dict(coordination.owners) == self.model.owners
        assert {
            lock: [(waiter.session_id, waiter.token) for waiter in queue]
            for lock, queue in coordination.queues.items()
        } == {lock: queue for lock, queue in self.model.queues.items() if queue}

    @invariant()
    def tokens_grow_from_holder_to_holder(self) -> None:
        for lock in self.model.queues:
            token = self.model.holder(lock)
            if token not in (NO_TOKEN, self.held.get(lock)):
                assert token > self.held.get(lock, NO_TOKEN)
                self.held[lock] = token
                self.model.tokens.append(token)


@pytest.mark.req("Q10")
def test_the_controller_does_what_the_model_does() -> None:
    run_state_machine_as_test(
        KvMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
