"""Golden transcripts: a script drives several quorum cores, and every effect is written down.

`python -m tests.unit.raftctl.raft.transcript --write` regenerates the files in `transcripts/`; read
the difference before committing it. A file has a comment, then commands, each followed by what it
led to. Nothing happens on its own: messages wait in their links, writes on their disks.

    nodes 1 2 3 | 9    voters, and observers after the bar
    log 1: 1 1 2x3     the node's log has a batch for each epoch named, here the last of 3 records
    state 1: 2 3       the node's quorum state: epoch, and the node it voted for, - for none
    start 1 2          starts (or restarts) nodes from their disks
    tick 1             time passes until the node's deadline
    wait 100           time passes, nobody notices
    deliver 1 2        what node 1 sent to node 2 arrives
    lose 1 2           it does not: requests fail
    sync 1             the writes of node 1 reach its disk
    run                delivers and syncs everything until nothing is left
    cut 1 2 | heal     `run` leaves the links between the two alone
    propose 1 3        node 1 appends a batch of so many records
    resign 1           node 1 is asked to hand over
    transfer 1 2       node 1 is asked to hand over to node 2
    add 1 4            node 1 is asked to make node 4 a voter; remove 1 4: to make it none
    read 1 7           node 1 is asked for linearizable read number 7
    snapshot 1 5       node 1 has a snapshot of the offsets below 5, and drops these from its log
    crash 1            node 1 dies; what was not synced is lost
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode
from raftctl.raft import RaftCore, ReplicaLog, events, messages
from raftctl.raft._config import RaftConfig
from raftctl.raft.batch import Batch, decode_batches, encode_batch
from raftctl.raft.messages import NO_NODE, Epoch, NodeId, Offset
from raftctl.raft.voters import VoterSet
from tests.unit.raftctl.raft.harness import key

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent / "transcripts"
RUN_STEPS_MAX = 200
OPERATOR = NodeId(0)
"""Who asks for what no node asks for; answers to it go nowhere."""
CONFIG = RaftConfig(snapshot_max_bytes=60)


@dataclass
class _Machine:
    """A node: its disk, and its core while it runs."""

    node_id: NodeId
    disk: list[Batch] = field(default_factory=list)
    state: events.QuorumState = field(default=events.QuorumState(Epoch(0), NO_NODE, None))
    core: RaftCore | None = None
    log: list[Batch] = field(default_factory=list)
    writes: deque[events.Effect] = field(default_factory=deque)
    request_ids: dict[int, NodeId] = field(default_factory=dict)
    snapshots: dict[messages.OffsetAndEpoch, bytes] = field(default_factory=dict)


class Script:
    """Runs the commands of one transcript and yields its lines."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000
        self._machines: dict[NodeId, _Machine] = {}
        self._voters = VoterSet([key(1)])
        self._links: dict[tuple[NodeId, NodeId], deque[messages.Request | messages.Response]] = {}
        self._cut: set[frozenset[NodeId]] = set()
        self._request_id = 0
        self._lines: list[str] = []

    def run(self, commands: list[str]) -> Iterator[str]:
        """Comments as they are; each command with what it led to, indented."""
        for line in commands:
            yield line
            command = line.partition("#")[0].replace(":", " ").split()
            if command:
                getattr(self, f"_do_{command[0]}")(*command[1:])
            yield from (f"    {told}" for told in self._lines)
            self._lines.clear()

    # --- commands -------------------------------------------------------------------------------

    def _do_nodes(self, *names: str) -> None:
        at = names.index("|") if "|" in names else len(names)
        self._voters = VoterSet(key(int(name)) for name in names[:at])
        for name in (*names[:at], *names[at + 1 :]):
            self._machines[NodeId(int(name))] = _Machine(NodeId(int(name)))

    def _do_log(self, node: str, *epochs: str) -> None:
        disk: list[Batch] = []
        for text in epochs:
            epoch, _, count = text.partition("x")
            base_offset = disk[-1].end_offset if disk else Offset(0)
            disk.append(Batch(base_offset, Epoch(int(epoch)), int(count or 1), 0, False, b""))
        self._at(node).disk = disk

    def _do_state(self, node: str, epoch: str, voted: str) -> None:
        vote = None if voted == "-" else _replica(int(voted))
        self._at(node).state = events.QuorumState(Epoch(int(epoch)), NO_NODE, vote)

    def _do_start(self, *nodes: str) -> None:
        for node in nodes:
            machine = self._at(node)
            machine.log = list(machine.disk)
            starts: dict[Epoch, Offset] = {}
            for batch in machine.log:
                starts.setdefault(batch.epoch, batch.base_offset)
            end = machine.log[-1].end_offset if machine.log else Offset(0)
            machine.core = RaftCore(
                CONFIG,
                _replica(machine.node_id),
                self._voters,
                machine.state,
                ReplicaLog(Offset(0), end, starts.items()),
                Random(machine.node_id),
                lambda leader, voters, granting: repr((leader, voters, granting)).encode(),
            )
            self._handle(machine, events.Started())

    def _do_tick(self, node: str) -> None:
        machine = self._at(node)
        deadline_ms = machine.core.deadline_ms() if machine.core else None
        if deadline_ms is None:
            self._lines.append(f"{node} has no deadline")
            return
        self._lines.append(f"{max(0, deadline_ms - self._now_ms)} ms pass")
        self._now_ms = max(self._now_ms, deadline_ms)
        self._handle(machine, events.Tick())

    def _do_wait(self, wait_ms: str) -> None:
        self._now_ms += int(wait_ms)

    def _do_deliver(self, source: str, target: str) -> None:
        link = self._link(source, target)
        for _ in range(len(link)):
            self._deliver(NodeId(int(source)), NodeId(int(target)))

    def _do_lose(self, source: str, target: str) -> None:
        link = self._link(source, target)
        lost = list(link)
        link.clear()
        for message in lost:
            if isinstance(message, messages.Request):
                failed = events.RequestFailed(NodeId(int(target)), message)
                self._handle(self._at(source), failed)

    def _do_sync(self, node: str) -> None:
        self._sync(self._at(node))

    def _do_run(self) -> None:
        for _ in range(RUN_STEPS_MAX):
            for machine in self._machines.values():
                self._sync(machine)
            ready = [link for link in self._links if self._links[link] and not self._is_cut(link)]
            if not ready and not any(machine.writes for machine in self._machines.values()):
                return
            for source, target in ready:
                self._deliver(source, target)
        self._lines.append("...")

    def _do_cut(self, one: str, other: str) -> None:
        self._cut.add(frozenset((NodeId(int(one)), NodeId(int(other)))))

    def _do_heal(self) -> None:
        self._cut.clear()

    def _do_propose(self, node: str, count: str) -> None:
        self._handle(self._at(node), events.Proposed(b"records", int(count), 5))

    def _do_resign(self, node: str) -> None:
        self._handle(self._at(node), events.ResignRequested())

    def _do_transfer(self, node: str, target: str) -> None:
        self._ask(node, messages.TransferLeadershipRequest(NodeId(int(target))))

    def _do_add(self, node: str, voter: str) -> None:
        added = messages.Voter(_replica(int(voter)), "h", 1)
        self._ask(node, messages.AddVoterRequest(added))

    def _do_remove(self, node: str, voter: str) -> None:
        self._ask(node, messages.RemoveVoterRequest(_replica(int(voter))))

    def _do_read(self, node: str, number: str) -> None:
        self._handle(self._at(node), events.ReadRequested(int(number)))

    def _do_snapshot(self, node: str, end: str) -> None:
        machine = self._at(node)
        held = [batch for batch in machine.log if batch.end_offset <= int(end)]
        snapshot_id = messages.OffsetAndEpoch(held[-1].end_offset, held[-1].epoch)
        machine.snapshots[snapshot_id] = b"".join(map(encode_batch, held))
        self._handle(machine, events.SnapshotTaken(snapshot_id))
        self._handle(machine, events.PrefixExpired(snapshot_id))

    def _do_crash(self, node: str) -> None:
        machine = self._at(node)
        machine.core = None
        machine.writes.clear()
        machine.request_ids.clear()
        for link in self._links:
            if machine.node_id in link:
                self._links[link].clear()

    # --- the world ------------------------------------------------------------------------------

    def _ask(self, node: str, request: messages.Request) -> None:
        self._request_id += 1
        self._at(node).request_ids[self._request_id] = OPERATOR
        self._handle(self._at(node), events.RequestReceived(self._request_id, request))

    def _at(self, node: str) -> _Machine:
        return self._machines[NodeId(int(node))]

    def _link(self, source: str, target: str) -> deque[messages.Request | messages.Response]:
        return self._links.setdefault((NodeId(int(source)), NodeId(int(target))), deque())

    def _is_cut(self, link: tuple[NodeId, NodeId]) -> bool:
        return frozenset(link) in self._cut or self._machines[link[1]].core is None

    def _handle(self, machine: _Machine, event: events.Event) -> None:
        if machine.core is None:
            return
        before = machine.core.role
        effects = machine.core.handle(event, self._now_ms)
        machine.core.invariants()
        if machine.core.role != before:
            self._lines.append(f"{machine.node_id} {before} -> {machine.core.role}")
        for effect in effects:
            self._perform(machine, effect)

    def _perform(self, machine: _Machine, effect: events.Effect) -> None:
        node = machine.node_id
        match effect:
            case events.AppendToLog(batch):
                machine.log.append(batch)
                machine.writes.append(effect)
                self._tell(node, f"append {_span(batch)}")
            case events.TruncateLog(end_offset):
                machine.log = [b for b in machine.log if b.end_offset <= end_offset]
                machine.writes.append(effect)
                self._tell(node, f"truncate to {end_offset}")
            case events.PersistQuorumState(state):
                machine.writes.append(effect)
                self._tell(node, f"persist {_state(state)}")
            case events.SendRequest(destination, request):
                self._send(node, destination, request)
            case events.Reply(request_id, response):
                self._send(node, machine.request_ids.pop(request_id), response)
            case events.ReplyFetch(request_id, response, _):
                wanted = [b for b in machine.log if b.base_offset >= response.fetch_offset]
                filled = replace(response, batches=b"".join(map(encode_batch, wanted)))
                self._send(node, machine.request_ids.pop(request_id), filled)
            case events.HighWatermarkAdvanced(high_watermark):
                self._tell(node, f"committed to {high_watermark}")
            case events.LeaderChanged(epoch, leader_id):
                self._tell(node, f"epoch {epoch} is led by {_node(leader_id)}")
            case events.ReadConfirmed(number):
                self._tell(node, f"read {number} is confirmed")
            case events.ReadRefused(number):
                self._tell(node, f"read {number} is refused")
            case _:
                self._perform_snapshot(machine, effect)

    def _perform_snapshot(self, machine: _Machine, effect: events.Effect) -> None:
        node = machine.node_id
        match effect:
            case events.DeleteLogPrefix(snapshot_id):
                machine.log = [b for b in machine.log if b.base_offset >= snapshot_id.offset]
                self._tell(node, f"drop the log before {_end(snapshot_id)}")
            case events.ResetLog(snapshot_id):
                machine.log = []
                self._tell(node, f"begin the log anew at {_end(snapshot_id)}")
            case events.ReplyFetchSnapshot(request_id, response, snapshot_id, max_bytes):
                data = machine.snapshots[snapshot_id]
                piece = data[response.position : response.position + max_bytes]
                filled = replace(response, size=len(data), data=piece)
                self._send(node, machine.request_ids.pop(request_id), filled)
            case events.SaveSnapshotChunk():
                machine.writes.append(effect)
                self._tell(node, f"save {_piece(effect.position, effect.data)}")

    def _tell(self, node: NodeId, what: str) -> None:
        self._lines.append(f"{node} {what}")

    def _send(
        self, source: NodeId, target: NodeId, message: messages.Request | messages.Response
    ) -> None:
        if target == OPERATOR:
            self._tell(source, f"to the operator: {describe(message)}")
            return
        self._link(str(source), str(target)).append(message)
        self._tell(source, f"to {target}: {describe(message)}")

    def _deliver(self, source: NodeId, target: NodeId) -> None:
        link = self._links[source, target]
        if not link:
            return
        message, machine = link.popleft(), self._machines[target]
        if isinstance(message, messages.Response):
            self._handle(machine, events.ResponseReceived(source, message))
            return
        self._request_id += 1
        machine.request_ids[self._request_id] = source
        self._handle(machine, events.RequestReceived(self._request_id, message))

    def _sync(self, machine: _Machine) -> None:
        """All writes that wait, one after the other; appends next to each other as one."""
        for _ in range(len(machine.writes)):
            if not machine.writes:
                return
            effect = machine.writes.popleft()
            match effect:
                case events.PersistQuorumState(state):
                    machine.state = state
                    self._handle(machine, events.QuorumStatePersisted())
                case events.TruncateLog(end_offset):
                    machine.disk = [b for b in machine.disk if b.end_offset <= end_offset]
                case events.SaveSnapshotChunk(snapshot_id, position, data, last):
                    saved = machine.snapshots.get(snapshot_id, b"")[:position] + data
                    machine.snapshots[snapshot_id] = saved
                    done = events.SnapshotSaved(None) if last else events.SnapshotChunkSaved()
                    self._handle(machine, done)
                case events.AppendToLog(batch):
                    machine.disk.append(batch)
                    if not (machine.writes and isinstance(machine.writes[0], events.AppendToLog)):
                        self._handle(machine, events.LogFlushed(batch.end_offset))


def _replica(node_id: int) -> messages.ReplicaKey:
    """The node with its disk."""
    return key(node_id, node_id)


def describe(message: messages.Request | messages.Response) -> str:
    """A message in one line, without what is the same in all transcripts."""
    match message:
        case messages.VoteRequest(epoch, _, end, pre_vote):
            return f"{_vote(pre_vote)} epoch={epoch} log={end.offset}@{end.epoch}"
        case messages.VoteResponse(epoch, _, granted, pre_vote, _):
            return f"{_vote(pre_vote)} {'granted' if granted else 'refused'} epoch={epoch}"
        case messages.FetchRequest():
            at = message.fetch_from
            text = f"fetch epoch={message.epoch} from={_end(at)}"
            return text + (f" seen={message.seen_round}" if message.seen_round else "")
        case messages.FetchResponse():
            return _fetched(message)
        case messages.BeginQuorumEpochRequest(epoch, _):
            return f"begin-quorum-epoch epoch={epoch}"
        case messages.EndQuorumEpochRequest(epoch, _, successors):
            order = ",".join(str(one.node_id) for one in successors)
            return f"end-quorum-epoch epoch={epoch} successors={order}"
        case messages.BeginQuorumEpochResponse() | messages.EndQuorumEpochResponse():
            return f"answer epoch={message.epoch}{_error(message.error)}"
        case messages.TransferLeadershipResponse() | messages.ChangeVotersResponse():
            return f"{message.error.name}"
        case messages.FetchSnapshotRequest():
            asked = f"snapshot={_end(message.snapshot_id)} from={message.position}"
            return f"fetch-snapshot epoch={message.epoch} {asked}"
        case messages.FetchSnapshotResponse():
            sent = f"{_piece(message.position, message.data)} of {message.size}"
            return f"piece epoch={message.epoch}{_error(message.error)} {sent}"
    raise TypeError(message)


def _fetched(response: messages.FetchResponse) -> str:
    text = f"fetched epoch={response.epoch} hw={response.high_watermark}{_error(response.error)}"
    if response.diverging is not None:
        text += f" diverging={_end(response.diverging)}"
    if response.snapshot_id is not None:
        text += f" snapshot={_end(response.snapshot_id)}"
    if response.round:
        text += f" round={response.round}"
    batches = [_span(batch) for _, batch in decode_batches(response.batches)]
    return f"{text} {' '.join(batches)}".rstrip()


def _error(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f" {error.name}"


def _vote(pre_vote: bool) -> str:
    return "pre-vote" if pre_vote else "vote"


def _end(end: messages.OffsetAndEpoch) -> str:
    return f"{end.offset}@{end.epoch}"


def _piece(position: int, data: bytes) -> str:
    return f"bytes {position}-{position + len(data) - 1}"


def _span(batch: Batch) -> str:
    return f"{batch.base_offset}-{batch.end_offset - 1}@{batch.epoch}"


def _state(state: events.QuorumState) -> str:
    voted = "-" if state.voted is None else state.voted.node_id
    return f"epoch={state.epoch} voted={voted} leader={_node(state.leader_id)}"


def _node(node_id: NodeId) -> str:
    return "nobody" if node_id == NO_NODE else str(node_id)


def play(text: str) -> str:
    """The transcript anew: its comments and commands, and what they lead to now."""
    commands = [line for line in text.splitlines() if not line.startswith("    ")]
    return "\n".join(Script().run(commands)) + "\n"


def main(arguments: list[str]) -> int:
    """`--write` regenerates all files; without it those that differ are named."""
    differ = 0
    for path in sorted(FOLDER.glob("*.txt")):
        old = path.read_text()
        new = play(old)
        if old != new:
            differ += 1
            sys.stdout.write(f"{path.name} differs\n")
            if "--write" in arguments:
                path.write_text(new)
    return 1 if differ and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
