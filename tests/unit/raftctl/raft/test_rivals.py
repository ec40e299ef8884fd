"""Two candidates of one epoch: neither can win, and one of them soon tries again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.raft.messages import NO_NODE, Epoch, VoteRequest, VoteResponse
from tests.unit.raftctl.raft.harness import CONFIG, Node, key, log_of, position

if TYPE_CHECKING:
    from raftctl.raft.messages import OffsetAndEpoch

T = CONFIG.election_timeout_ms


@pytest.mark.req("Q1")
@pytest.mark.parametrize(
    ("rival", "log", "soon"),
    [
        (2, position(2, 1), True),
        (2, position(3, 1), False),
        (2, position(1, 1), True),
        (0, position(2, 1), False),
    ],
)
def test_of_two_candidates_the_one_with_the_better_claim_tries_again_soon(
    rival: int, log: OffsetAndEpoch, soon: bool
) -> None:
    """Else both would wait for an election timeout and more, and the quorum with them."""
    node = Node(voters=(0, 1, 2), epoch=1, log=log_of(1, 1))
    node.wait()
    node.answer(rival, VoteResponse(Epoch(1), NO_NODE, True, True, key(rival)))
    node.persisted()
    began_ms = node.now_ms
    answer = node.ask(VoteRequest(Epoch(2), key(rival), log, False))
    assert isinstance(answer, VoteResponse)
    assert not answer.granted
    waits_ms = (node.core.deadline_ms() or 0) - began_ms
    assert (waits_ms == CONFIG.rivalry_ms) == soon
    assert soon or waits_ms >= T
    node.wait()
    (first, *_) = node.sent()
    assert isinstance(first, VoteRequest)
    assert (first.pre_vote, first.epoch) == (True, 2)


def test_a_pre_vote_of_a_rival_hurries_nobody() -> None:
    node = Node(epoch=1, log=log_of(1, 1))
    node.wait()
    node.answer(2, VoteResponse(Epoch(1), NO_NODE, True, True, key(2)))
    node.persisted()
    before_ms = node.core.deadline_ms()
    node.ask(VoteRequest(Epoch(2), key(2), position(2, 1), True))
    node.ask(VoteRequest(Epoch(1), key(2), position(2, 1), False))
    assert node.core.deadline_ms() == before_ms
