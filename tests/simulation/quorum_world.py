"""A world of quorum cores alone: their network, their disks, their clock, and what goes wrong.

One heap of things to happen; everything random comes from one seed. Messages are lost, repeated
and overtake each other, links are cut in one direction, clocks differ, disks are slow and lose at a
crash what they have not written, nodes crash and come back. `QuorumChecker` looks on after every
event.
"""

from __future__ import annotations

import heapq
import random
import zlib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from jepsen.simulator.coverage import Transition, event_kind
from raftctl.errors import ErrorCode
from raftctl.raft import RaftCore, ReplicaLog
from raftctl.raft._config import RaftConfig
from raftctl.raft.batch import Batch, CorruptBatchError, decode_batches, encode_batch
from raftctl.raft.events import (
    AppendToLog,
    DeleteLogPrefix,
    Effect,
    Event,
    HighWatermarkAdvanced,
    LogFlushed,
    PersistQuorumState,
    PrefixExpired,
    Proposed,
    QuorumStatePersisted,
    ReadConfirmed,
    ReadRefused,
    ReadRequested,
    Reply,
    ReplyFetch,
    ReplyFetchSnapshot,
    RequestFailed,
    RequestReceived,
    ResetLog,
    ResignRequested,
    ResponseReceived,
    SaveSnapshotChunk,
    SendRequest,
    SnapshotChunkSaved,
    SnapshotRefused,
    SnapshotSaved,
    SnapshotTaken,
    Started,
    Tick,
    TruncateLog,
)
from raftctl.raft.messages import (
    ChangeVotersRequest,
    Epoch,
    FetchResponse,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    ReplicaKey,
    Request,
    Response,
    TransferLeadershipRequest,
)
from raftctl.raft.voters import VoterSet, decode_voters
from tests.simulation.quorum_checker import QuorumChecker
from tests.simulation.quorum_machine import EVEN_RATE, Machine, end_of

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = RaftConfig(
    election_timeout_ms=200,
    fetch_timeout_ms=400,
    election_backoff_max_ms=200,
    request_timeout_ms=300,
    fetch_max_wait_ms=100,
    fetch_max_bytes=400,
    snapshot_max_bytes=150,
)

DISKS = 1_000
"""More than there are nodes."""
AHEAD_MS_MAX = 1_000_000
"""Clocks agree on nothing but how long a second is."""


@dataclass
class Faults:
    """What may go wrong at present; probabilities per message, milliseconds."""

    loss: float = 0.0
    repetition: float = 0.0
    delay_ms: int = 5
    write_ms: int = 3
    torn: float = 0.0
    """How likely it is that a snapshot which was fetched cannot be read."""
    straggling: float = 0.0
    """How likely it is that a message takes up to `straggling_ms`."""
    straggling_ms: int = 0
    sluggish: float = 0.0
    """How likely it is that a write takes up to `sluggish_ms`."""
    sluggish_ms: int = 0


CALM = Faults()


NOBODY = VoterSet((), dynamic=True)


def replica_key(node_id: NodeId, disk: int = 0) -> ReplicaKey:
    """The node and its directory: its first one, or so many disks later."""
    return ReplicaKey(node_id, UUID(int=disk * DISKS + node_id))


class QuorumWorld:
    """`voters` + `observers` nodes on one clock."""

    def __init__(
        self,
        seed: int,
        voters: int,
        observers: int = 0,
        faults: Faults = CALM,
        *,
        dynamic: bool = False,
        rates: tuple[int, int] = (EVEN_RATE, EVEN_RATE),
        config: RaftConfig = CONFIG,
    ) -> None:
        """`dynamic` voters are known by the directories that were formatted; else by node ids."""
        self.random = random.Random(seed)
        self.faults = faults
        self.now_ms = 0
        first = [NodeId(i) for i in range(1, voters + 1)]
        keys = [replica_key(i) if dynamic else ReplicaKey(i, None) for i in first]
        self.voters = VoterSet(keys, dynamic=dynamic)
        stand_ins = tuple(NodeId(-1 - i) for i in first) if dynamic else ()
        self.config = replace(config, bootstrap_ids=stand_ins)
        self.rates = rates
        self.calm: frozenset[NodeId] = frozenset()
        """Nodes whose disks, and links with each other, are in order whatever goes wrong."""
        self.coverage: Counter[Transition] = Counter()
        ids = [NodeId(i) for i in range(1, voters + observers + 1)]
        self.machines = {
            node_id: Machine(
                replica_key(node_id), NOBODY if dynamic and node_id > voters else self.voters
            )
            for node_id in ids
        }
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.late_ms: dict[tuple[NodeId, NodeId], int] = {}
        """What messages on a link take longer than others."""
        self.checker = QuorumChecker(self.machines)
        self.events = 0
        self.tracing = False
        self.trace = 0
        """A checksum of all that happened, if `tracing`."""
        self._clocks = random.Random(f"clocks of {seed}")
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._stand_ins: dict[int, NodeId] = {}
        """As whom each call knows its destination, if it does not know the node."""
        self._proposals = 0
        for node_id in ids:
            self.start(node_id)

    # --- time -----------------------------------------------------------------------------------

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Lets `action` happen that much later."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, action))

    def run_until(self, end_ms: int, done: Callable[[], bool] | None = None) -> bool:
        """Lets things happen up to a time, or until `done`; tells whether `done` came true."""
        while self._heap and self._heap[0][0] <= end_ms:
            if done is not None and done():
                return True
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
        self.now_ms = max(self.now_ms, end_ms)
        return done is not None and done()

    # --- nodes ----------------------------------------------------------------------------------

    def start(self, node_id: NodeId) -> None:
        """Starts the node from what is on its disk; nothing if it runs."""
        machine = self.machines[node_id]
        if machine.core is not None:
            return
        machine.recover()
        starts: dict[Epoch, Offset] = {}
        for batch in machine.log:
            starts.setdefault(batch.epoch, batch.base_offset)
        base_voters = self.voters_in(machine, machine.base)
        start, end = end_of(machine.base), end_of(machine.history)
        machine.core = RaftCore(
            self.config,
            machine.local,
            base_voters,
            machine.disk_state,
            ReplicaLog(start.offset, end.offset, starts.items(), start.epoch),
            random.Random(self.random.getrandbits(32)),
            lambda leader, voters, granting: repr((leader, voters, granting)).encode(),
            machine.snapshot_id,
            [batch for batch in machine.log if batch.control],
        )
        machine.tick_at_ms = None
        machine.ahead_ms = self._clocks.randrange(AHEAD_MS_MAX)
        machine.begun_ms, machine.rate = self.now_ms, self._clocks.randint(*self.rates)
        self.checker.started(node_id, machine.core)
        self.handle(machine, Started())

    def voters_of(self, batches: list[Batch]) -> VoterSet:
        """The voters after these records, which are all from the beginning."""
        return _newest_voters(batches) or self.voters

    def voters_in(self, machine: Machine, batches: list[Batch]) -> VoterSet:
        """The voters after these records of its log, or those that it was told before."""
        return _newest_voters(batches) or machine.initial

    def crash(self, node_id: NodeId) -> None:
        """Kills the process; of the writes under way a random number reached the disk."""
        machine = self.machines[node_id]
        machine.core = None
        machine.incarnation += 1
        for _ in range(self.random.randint(0, len(machine.writes))):
            self._write(machine, machine.writes.popleft())
        machine.writes.clear()
        machine.calls.clear()
        machine.request_ids.clear()
        machine.held.clear()
        machine.paused = False
        self.checker.crashed(node_id)

    def wipe(self, node_id: NodeId) -> None:
        """The node's process ends, and another disk, with another directory, takes its place."""
        machine = self.machines[node_id]
        self.crash(node_id)
        machine.lose_disk(replica_key(node_id, len(machine.retired) + 1))

    def pause(self, node_id: NodeId) -> None:
        """Holds the process up: time goes on, its disk too, and what comes waits."""
        machine = self.machines[node_id]
        machine.paused = machine.core is not None

    def resume(self, node_id: NodeId) -> None:
        """Lets the process go on with all that waits, in order."""
        machine = self.machines[node_id]
        machine.paused = False
        held, machine.held = machine.held, []
        for event in held:
            self.handle(machine, event)

    def handle(self, machine: Machine, event: Event) -> None:
        """Gives the core an event, performs its effects, and lets the checker look."""
        core = machine.core
        if core is None:
            return
        if machine.paused:
            machine.held.append(event)
            return
        own_ms, before = machine.own_ms(self.now_ms), core.role
        if isinstance(event, RequestReceived):
            self.checker.hears(machine, core, event.request, own_ms)
        effects = core.handle(event, own_ms)
        core.invariants()
        self.events += 1
        self.coverage[before, event_kind(event), core.role] += 1
        if self.tracing:
            line = f"{self.now_ms} {machine.node_id} {event} {core.role} {core.epoch} {effects}"
            self.trace = zlib.crc32(line.encode(), self.trace)
        for effect in effects:
            self.checker.effect(machine, core, effect, self.now_ms)
            self._perform(machine, effect)
        self.checker.look(machine, core, own_ms)
        deadline_ms = core.deadline_ms()
        if deadline_ms is not None and deadline_ms != machine.tick_at_ms:
            machine.tick_at_ms = deadline_ms
            late_ms = self.random.choice((0, 0, 0, 1, 10))
            delay_ms = machine.delay_ms(own_ms, deadline_ms) + late_ms
            self.after(delay_ms, partial(self._tick, machine, machine.incarnation, deadline_ms))

    def _tick(self, machine: Machine, incarnation: int, deadline_ms: int) -> None:
        if machine.incarnation == incarnation and machine.tick_at_ms == deadline_ms:
            machine.tick_at_ms = None
            self.handle(machine, Tick())

    def _perform(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case AppendToLog(batch):
                batch = self.checker.same(batch)
                machine.log.append(batch)
                self._start_write(machine, AppendToLog(batch))
            case TruncateLog(end_offset):
                machine.log = [b for b in machine.log if b.end_offset <= end_offset]
                self._start_write(machine, effect)
            case PersistQuorumState():
                self._start_write(machine, effect)
            case SendRequest(destination, request):
                self._call(machine, destination, request)
            case Reply(request_id, response):
                self._answer(machine, request_id, response)
            case ReplyFetch(request_id, response, max_bytes):
                self._answer(machine, request_id, _with_batches(machine, response, max_bytes))
            case HighWatermarkAdvanced() | ReadConfirmed() | ReadRefused():
                pass
            case _:
                self._perform_snapshot(machine, effect)

    def _perform_snapshot(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case DeleteLogPrefix(snapshot_id):
                history = machine.history
                machine.base = [b for b in history if b.end_offset <= snapshot_id.offset]
                machine.log = history[len(machine.base) :]
                self._start_write(machine, effect)
            case ResetLog(snapshot_id):
                machine.base, machine.log = list(machine.snapshots[snapshot_id]), []
                self._start_write(machine, effect)
            case SaveSnapshotChunk():
                saved = partial(self._chunk_saved, machine, machine.incarnation, effect)
                self.after(self._write_ms(machine), saved)
            case ReplyFetchSnapshot(request_id, answer):
                self._answer(machine, request_id, _with_chunk(machine, answer, effect))

    def _chunk_saved(self, machine: Machine, incarnation: int, chunk: SaveSnapshotChunk) -> None:
        if machine.incarnation != incarnation:
            return
        machine.part = machine.part[: chunk.position] + chunk.data
        if not chunk.last:
            self.handle(machine, SnapshotChunkSaved())
            return
        torn = self._disk(machine).torn
        if torn and self.random.random() < torn:
            self.handle(machine, SnapshotRefused())
            return
        try:
            batches = [self.checker.same(batch) for _, batch in decode_batches(machine.part)]
        except CorruptBatchError:
            self.handle(machine, SnapshotRefused())
            return
        voters = self.voters_of(batches)
        self.checker.snapshot(chunk.snapshot_id, batches)
        machine.snapshots[chunk.snapshot_id] = batches
        self.handle(machine, SnapshotSaved(voters if voters.dynamic else None))

    def take_snapshot(self, node_id: NodeId, *, expire: bool, without: int = 0) -> None:
        """The node writes what is committed as a snapshot, and perhaps forgets what is before.

        `without` so many of the last batches: a snapshot may be behind what is committed.
        """
        machine = self.machines[node_id]
        core = machine.core
        if core is None or machine.paused:
            return
        batches = [b for b in machine.history if b.end_offset <= core.high_watermark]
        batches = batches[: len(batches) - without]
        if not batches:
            return
        snapshot_id = end_of(batches)
        if machine.snapshot_id and snapshot_id.offset <= machine.snapshot_id.offset:
            return
        self.checker.snapshot(snapshot_id, batches)
        machine.snapshots[snapshot_id] = batches
        self.handle(machine, SnapshotTaken(snapshot_id))
        if expire:
            self.handle(machine, PrefixExpired(snapshot_id))
            machine.snapshots = {snapshot_id: batches}

    # --- disks ----------------------------------------------------------------------------------

    def _start_write(self, machine: Machine, effect: Effect) -> None:
        machine.writes.append(effect)
        if len(machine.writes) == 1:
            self._schedule_write(machine)

    def _disk(self, machine: Machine) -> Faults:
        return CALM if machine.node_id in self.calm else self.faults

    def _schedule_write(self, machine: Machine) -> None:
        done = partial(self._write_done, machine, machine.incarnation)
        self.after(self._write_ms(machine), done)

    def _write_ms(self, machine: Machine) -> int:
        faults = self._disk(machine)
        write_ms = self.random.randint(0, faults.write_ms)
        if faults.sluggish and self.random.random() < faults.sluggish:
            write_ms = self.random.randint(0, faults.sluggish_ms)
        return max(write_ms, machine.hangs_until_ms - self.now_ms)

    def hang(self, node_id: NodeId, for_ms: int) -> None:
        """Nothing that begins to be written from now on comes to the disk before that time."""
        self.machines[node_id].hangs_until_ms = self.now_ms + for_ms

    def _write_done(self, machine: Machine, incarnation: int) -> None:
        """One write, or all appends next to each other at once, as a group commit does."""
        if machine.incarnation != incarnation:
            return
        effect = machine.writes.popleft()
        self._write(machine, effect)
        while isinstance(effect, AppendToLog) and machine.writes:
            if not isinstance(machine.writes[0], AppendToLog):
                break
            effect = machine.writes.popleft()
            self._write(machine, effect)
        if machine.writes:
            self._schedule_write(machine)
        if isinstance(effect, AppendToLog):
            self.handle(machine, LogFlushed(effect.batch.end_offset))
        elif isinstance(effect, PersistQuorumState):
            self.handle(machine, QuorumStatePersisted())

    def _write(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case AppendToLog(batch):
                machine.disk.append(batch)
            case TruncateLog(end_offset):
                machine.disk = [b for b in machine.disk if b.end_offset <= end_offset]
            case DeleteLogPrefix(snapshot_id):
                disk = machine.disk_base + machine.disk
                machine.disk_base = [b for b in disk if b.end_offset <= snapshot_id.offset]
                machine.disk = disk[len(machine.disk_base) :]
            case ResetLog(snapshot_id):
                held = machine.snapshots.get(snapshot_id, machine.base)
                machine.disk_base, machine.disk = list(held), []
            case PersistQuorumState(state):
                self.checker.persisted(machine, state)
                machine.disk_state = state

    # --- network --------------------------------------------------------------------------------

    def _call(self, machine: Machine, destination: NodeId, request: Request) -> None:
        self._sequence += 1
        call = self._sequence
        machine.calls[call] = (destination, request)
        if destination not in self.machines:
            self._stand_ins[call] = destination
            destination = NodeId(-1 - destination)
        receive = partial(self._receive, destination, machine.node_id, request, call)
        self._send(machine.node_id, destination, receive)
        timed_out = partial(self._call_failed, machine, machine.incarnation, call)
        self.after(self.config.request_timeout_ms, timed_out)

    def _receive(self, node_id: NodeId, source: NodeId, request: Request, call: int) -> None:
        machine = self.machines[node_id]
        if machine.core is None:
            refused = self.machines[source]
            self.after(0, partial(self._call_failed, refused, refused.incarnation, call))
            return
        self._sequence += 1
        machine.request_ids[self._sequence] = (source, call)
        self.checker.asked(machine, self._sequence, request, self.now_ms)
        self.handle(machine, RequestReceived(self._sequence, request))

    def _answer(self, machine: Machine, request_id: int, response: Response) -> None:
        source, call = machine.request_ids.pop(request_id)
        known_as = self._stand_ins.get(call, machine.node_id)
        back = partial(self._receive_answer, source, known_as, response, call)
        self._send(machine.node_id, source, back)

    def _receive_answer(
        self, node_id: NodeId, source: NodeId, response: Response, call: int
    ) -> None:
        machine = self.machines[node_id]
        machine.calls.pop(call, None)
        self.handle(machine, ResponseReceived(source, response))

    def _call_failed(self, machine: Machine, incarnation: int, call: int) -> None:
        pending = machine.calls.pop(call, None)
        if pending is not None and machine.incarnation == incarnation:
            self.handle(machine, RequestFailed(*pending))

    def _send(self, source: NodeId, destination: NodeId, deliver: Callable[[], None]) -> None:
        faults = CALM if {source, destination} <= self.calm else self.faults
        copies = 2 if self.random.random() < faults.repetition else 1
        for _ in range(copies):
            lost = self.random.random() < faults.loss
            if not lost and (source, destination) not in self.cut:
                late_ms = self.late_ms.get((source, destination), 0)
                if faults.straggling and self.random.random() < faults.straggling:
                    late_ms = max(late_ms, self.random.randint(0, faults.straggling_ms))
                self.after(late_ms + self.random.randint(1, faults.delay_ms), deliver)

    # --- for scenarios --------------------------------------------------------------------------

    def leaders(self) -> list[Machine]:
        """The running nodes that believe they lead."""
        return [m for m in self.machines.values() if m.core is not None and m.core.is_leader]

    def propose(self) -> None:
        """Every node that believes it leads appends a batch."""
        for machine in self.leaders():
            if machine.core is None or machine.core.is_transferring or machine.paused:
                continue
            self._proposals += 1
            count = self.random.randint(1, 3)
            payload = f"proposal {self._proposals}".encode()
            self.checker.proposed(payload)
            self.handle(machine, Proposed(payload, count, self.now_ms))

    def resign(self, node_id: NodeId) -> None:
        """Asks the node to hand leadership over."""
        self.handle(self.machines[node_id], ResignRequested())

    def read(self, node_id: NodeId) -> None:
        """Asks the node, which may believe that it leads, for a linearizable read."""
        self._sequence += 1
        if self.machines[node_id].core is not None:
            self.checker.reads(node_id, self._sequence)
            self.handle(self.machines[node_id], ReadRequested(self._sequence))

    def transfer(self, node_id: NodeId, target: NodeId) -> None:
        """Asks the node to hand leadership to the target."""
        self._sequence += 1
        request = TransferLeadershipRequest(target)
        self._receive(node_id, target, request, self._sequence)

    def change_voters(self, node_id: NodeId, request: ChangeVotersRequest) -> None:
        """Asks the node to change the voters."""
        self._sequence += 1
        self._receive(node_id, node_id, request, self._sequence)

    def settled(self) -> bool:
        """Whether one leads, all run and follow it, and everything is committed everywhere."""
        cores = [m.core for m in self.machines.values() if m.core is not None]
        leaders = [core for core in cores if core.is_leader]
        running = len(cores) == len(self.machines)
        if len(leaders) != 1 or not running or leaders[0].is_transferring:
            return False
        end = leaders[0].log.end_offset
        views = {(c.epoch, c.leader_id, c.high_watermark, c.log.end_offset) for c in cores}
        return views == {(leaders[0].epoch, leaders[0].leader_id, end, end)}


_decode_voters = lru_cache(decode_voters)


def _newest_voters(batches: list[Batch]) -> VoterSet | None:
    """The last set that these records make."""
    sets = (_decode_voters(batch.payload) for batch in reversed(batches) if batch.control)
    return next((voters for voters in sets if voters is not None), None)


def _with_batches(machine: Machine, response: Response, max_bytes: int) -> FetchResponse:
    assert isinstance(response, FetchResponse)
    data = b""
    start = bisect_left(machine.log, response.fetch_offset, key=attrgetter("base_offset"))
    for batch in islice(machine.log, start, None):
        encoded = encode_batch(batch)
        if data and len(data) + len(encoded) > max_bytes:
            break
        data += encoded
    return replace(response, batches=data)


def _with_chunk(
    machine: Machine, response: FetchSnapshotResponse, effect: ReplyFetchSnapshot
) -> FetchSnapshotResponse:
    batches = machine.snapshots.get(effect.snapshot_id)
    if batches is None:
        return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    data = b"".join(encode_batch(batch) for batch in batches)
    chunk = data[response.position : response.position + effect.max_bytes]
    return replace(response, size=len(data), data=chunk)
