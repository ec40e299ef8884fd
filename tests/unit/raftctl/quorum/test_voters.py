"""The voters' record in the log and in snapshots, and addresses that follow it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from raftctl.errors import ErrorCode
from raftctl.loader import image_of
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.quorum import Peers
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    Epoch,
    LeaderEndpoint,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
    VoteResponse,
)
from raftctl.raft.voters import VoterSet, decode_voters
from raftctl.storage import BOOTSTRAP, METADATA_LOG_NAME, write_initial_voters
from raftctl.storage.snapshots import SnapshotStore
from tests.kit.disk import FakeDisk
from tests.unit.raftctl.quorum.parts import DIRECTORY, Member

if TYPE_CHECKING:
    from raftctl.rpc import RpcClient

ME = Voter(ReplicaKey(NodeId(1), None), "here", 9093)


def voter(node_id: int, port: int = 9093) -> Voter:
    return Voter(ReplicaKey(NodeId(node_id), UUID(int=node_id)), f"host-{node_id}", port)


def dynamic(*voters: Voter) -> VoterSet:
    return VoterSet(voters, dynamic=True)


@pytest.mark.req("Q7")
async def test_what_has_been_promised_an_offset_stands_before_the_voters_record() -> None:
    member = Member()
    await member.lead()
    promised = member.driver.append([b"\x91\x3c"])
    changed = member.driver.receive(UpdateVoterRequest(ME))
    after = member.driver.append([b"\x91\x3c"])
    await member.until(changed.done)
    assert cast("Any", changed.result()).error is ErrorCode.NONE
    batches = {batch.base_offset: batch for batch in member.log.batches(Offset(0), 1 << 20)}
    assert (batches[promised].control, batches[after].control) == (False, False)
    assert decode_voters(batches[Offset(promised + 1)].payload) == dynamic(ME)
    assert after == promised + 2
    await member.stop()


@pytest.mark.req("Q7")
async def test_a_log_that_is_opened_again_tells_who_votes() -> None:
    member = Member()
    await member.lead()
    changed = member.driver.receive(UpdateVoterRequest(ME))
    await member.until(changed.done)
    await member.stop()
    again = Member(disk=member.disk)
    assert again.core.voters == dynamic(ME)
    assert again.core.voters.dynamic
    again.log.close()


@pytest.mark.req("Q6", "Q7")
def test_a_snapshot_tells_who_votes_at_its_end() -> None:
    store = SnapshotStore(FakeDisk(), DIRECTORY)
    store._files.make_directories(DIRECTORY)
    first, second = (OffsetAndEpoch(Offset(n), Epoch(1)) for n in (5, 9))
    store.write(first, 7, (), dynamic(voter(1), voter(2)))
    store.write(second, 8, (), VoterSet([ReplicaKey(NodeId(1), None)]))
    assert store.read(first).voters == dynamic(voter(1), voter(2))
    assert store.read(second).voters is None, "those of the configuration"


@pytest.mark.req("Q7")
def test_formatting_writes_the_first_voters() -> None:
    disk = FakeDisk()
    disk.make_directories("/data")
    write_initial_voters(disk, "/data", dynamic(voter(1)), 7)
    snapshot = SnapshotStore(disk, f"/data/{METADATA_LOG_NAME}").read(BOOTSTRAP)
    assert (snapshot.voters, snapshot.batches) == (dynamic(voter(1)), ())
    assert image_of(snapshot) == EMPTY_IMAGE, "also its time: other disks were not formatted then"


# --- addresses --------------------------------------------------------------------------------


class Client:
    """A client that only knows where it would connect to."""

    def __init__(self, endpoint: LeaderEndpoint) -> None:
        self.endpoint = endpoint
        self.closed = False

    async def close(self) -> None:
        self.closed = True


def known(peers: Peers) -> dict[int, tuple[str, int]]:
    clients = cast("dict[int, Client]", peers)
    return {number: (one.endpoint.host, one.endpoint.port) for number, one in clients.items()}


def some_peers() -> Peers:
    def connect(node_id: NodeId, endpoint: LeaderEndpoint) -> RpcClient:
        return cast("RpcClient", Client(endpoint))

    own = (NodeId(1), LeaderEndpoint("me", 1))
    return Peers(connect, own, {NodeId(-2): LeaderEndpoint("boot", 2)})


def begin(node_id: int, host: str) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(Epoch(3), NodeId(node_id), LeaderEndpoint(host, 5))


@pytest.mark.req("Q7")
async def test_addresses_follow_the_record_and_the_leaders_own_word() -> None:
    peers = some_peers()
    peers.voters_are(dynamic(voter(1), voter(2)))
    outdated = cast("Client", peers[2])
    peers.learn_leader(begin(2, "moved"))
    peers.learn_leader(begin(3, "new"))
    assert known(peers) == {
        -2: ("boot", 2),
        1: ("host-1", 9093),
        2: ("moved", 5),
        3: ("new", 5),
    }
    peers.voters_are(dynamic(voter(1), voter(2), voter(4)))
    assert known(peers)[2] == ("moved", 5), "the record says of it what it said before"
    peers.voters_are(dynamic(voter(1), voter(2, port=7)))
    assert known(peers)[2] == ("host-2", 7)
    assert peers.in_turn == (1, 2, -2)
    await peers.close()
    assert outdated.closed


@pytest.mark.req("Q7")
async def test_an_answer_says_where_the_leader_is_that_it_names() -> None:
    peers = some_peers()
    answer = VoteResponse(Epoch(3), NodeId(2), False, False, voter(1).replica)
    static = VoterSet([voter(1), voter(2)])
    peers.voters_are(static)
    told = cast("VoteResponse", peers.with_leader_address(answer))
    assert told.leader_endpoint == LeaderEndpoint("host-2", 9093), "who asks may have no such list"
    own = cast("VoteResponse", peers.with_leader_address(replace(answer, leader_id=NodeId(1))))
    assert own.leader_endpoint == LeaderEndpoint("host-1", 9093), "as the configuration has it"
    peers.learn_leader(begin(4, "fourth"))
    later = cast("VoteResponse", peers.with_leader_address(replace(answer, leader_id=NodeId(4))))
    assert later.leader_endpoint == LeaderEndpoint("fourth", 5), "the log will tell of it"
    peers.voters_are(dynamic(voter(1), voter(2)))
    told = cast("VoteResponse", peers.with_leader_address(answer))
    assert told.leader_endpoint == LeaderEndpoint("host-2", 9093)
    introduced = peers.with_own_address(BeginQuorumEpochRequest(Epoch(3), NodeId(1)))
    assert cast("BeginQuorumEpochRequest", introduced).leader_endpoint == LeaderEndpoint("me", 1)
    await peers.close()


@pytest.mark.req("Q7")
async def test_a_configured_voter_is_looked_for_elsewhere_only_when_it_cannot_be_reached() -> None:
    peers = some_peers()
    peers.voters_are(VoterSet([voter(1), voter(2)]))
    peers.learn_leader(begin(2, "moved"))
    assert known(peers)[2] == ("host-2", 9093), "others may know it by another address"
    peers.unreachable(NodeId(2))
    assert known(peers)[2] == ("moved", 5)
    peers.unreachable(NodeId(2))
    assert known(peers)[2] == ("host-2", 9093), "in turn"
    peers.unreachable(NodeId(9))
    peers.voters_are(dynamic(voter(1), voter(2)))
    peers.unreachable(NodeId(2))
    assert known(peers)[2] == ("host-2", 9093), "the log says where it is"
    await peers.close()
