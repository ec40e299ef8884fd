"""A follower's session against the leader's: whatever is lost, the leader knows the wants."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.apis.handler.fetch_sessions import FetchSessions, SessionRequest, Wanted
from broker.replication.fetcher._followings import FollowerSession, NextFetch
from broker.types import FetchKey as Key
from broker.types import FetchResult
from raftctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")
Fields: TypeAlias = dict[str, Any]
pytestmark = pytest.mark.req("R1")


def wants(**offsets: int) -> dict[str, dict[str, Any]]:
    return {name: {"offset": offset} for name, offset in offsets.items()}


def named(session: FollowerSession[K, Fields], wanted: Mapping[K, Fields]) -> NextFetch[K, Fields]:
    """The next Fetch, when all of this is wanted and nothing else."""
    for key in [key for key in session._wanted if key not in wanted]:
        session.drop(key)
    for key, fields in wanted.items():
        session.want(key, fields)
    return session.next()


def test_the_first_fetch_names_all_the_next_what_changed() -> None:
    session: FollowerSession[str, Fields] = FollowerSession()
    assert named(session, wants(a=1, b=1)) == NextFetch(0, 0, wants(a=1, b=1), ())
    session.answered(ErrorCode.NONE, 77)
    assert named(session, wants(a=1, b=2)) == NextFetch(77, 1, wants(b=2), ())
    session.answered(ErrorCode.NONE, 77)
    assert named(session, wants(b=2, c=3)) == NextFetch(77, 2, wants(c=3), ("a",))


def test_without_a_session_all_are_named_each_time() -> None:
    session: FollowerSession[str, Fields] = FollowerSession()
    for _ in range(2):
        assert named(session, wants(a=1)) == NextFetch(0, 0, wants(a=1), ())
        session.answered(ErrorCode.NONE, 0)


def test_after_a_lost_answer_the_session_is_ended_and_another_begun() -> None:
    session: FollowerSession[str, Fields] = FollowerSession()
    named(session, wants(a=1))
    session.answered(ErrorCode.NONE, 77)
    named(session, wants(a=1))
    session.failed()
    assert named(session, wants(a=1)) == NextFetch(77, 0, wants(a=1), ())
    session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert named(session, wants(a=1)) == NextFetch(77, 0, wants(a=1), ())
    session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert named(session, wants(a=1)) == NextFetch(0, 0, wants(a=1), ())


def test_epochs_begin_again_after_the_largest() -> None:
    session: FollowerSession[str, Fields] = FollowerSession()
    named(session, wants(a=1))
    session._epoch = 2**31 - 1
    session.answered(ErrorCode.NONE, 7)
    assert named(session, wants(a=1)).epoch == 1


def test_what_is_wanted_and_dropped_between_two_fetches_is_not_named() -> None:
    session: FollowerSession[str, Fields] = FollowerSession()
    named(session, wants(a=1, b=1))
    session.answered(ErrorCode.NONE, 77)
    session.want("c", {"offset": 1})
    session.drop("c")
    session.drop("a")
    session.want("a", {"offset": 1})
    session.drop("b")
    assert session.next() == NextFetch(77, 1, {}, ("b",))


rounds = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3)),
        st.sampled_from(["answered", "answered", "lost before", "lost after", "evicted"]),
    ),
    max_size=30,
)


@given(rounds, st.integers(0, 2))
def test_the_leader_reads_what_the_follower_wants_or_refuses(
    rounds: list[tuple[dict[str, int], str]], slots: int
) -> None:
    leader = FetchSessions(slots, random.Random(1))
    follower: FollowerSession[Key, Fields] = FollowerSession()
    for offsets, fate in rounds:
        wanted = {Key(n, 0): Wanted(0, offset, 0, 0, 1) for n, offset in offsets.items()}
        told = named(follower, {key: one._asdict() for key, one in wanted.items()})
        if fate == "lost before":
            follower.failed()
            continue
        if fate == "evicted":
            leader._remove(told.session_id)
        changed = {key: Wanted(**fields) for key, fields in told.changed.items()}
        asked = SessionRequest(told.session_id, told.epoch, False, True, changed, told.forgotten)
        turn = leader.begin(asked, 0)
        error = turn.error
        if not error:
            assert dict(turn.partitions) == wanted
            error, _ = turn.answer([FetchResult(ErrorCode.NONE)] * len(wanted))
        assert (error is ErrorCode.NONE) or fate == "evicted"
        if fate == "lost after":
            follower.failed()
        else:
            follower.answered(error, turn.session_id)
    assert len(leader) <= slots
