"""What the clients of the workloads on logs claim: neither more nor less than they know."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import InvalidReplicationFactorError

from jepsen.environments import ClusterSpec
from jepsen.environments.external import ExternalEnvironment
from jepsen.errors import ClusterError
from jepsen.history import Op, OpType
from jepsen.workloads import WorkloadOptions, bank
from jepsen.workloads._logs import ABORT
from jepsen.workloads.bank import FINAL, BankClient
from jepsen.workloads.group import GroupClient
from jepsen.workloads.list_append import ListAppendClient
from jepsen.workloads.queue import QueueClient
from jepsen.workloads.sessions import _aio as made
from jepsen.workloads.sessions._base import GroupMembership
from tests.unit.jepsen.workloads.sessions import ScriptedSession

pytestmark = pytest.mark.req("J3")
SENDS = [["send", "0", 7], ["send", "1", 8]]


def op(f: str, value: Any = None) -> Op:
    return Op(0, 0, 1, OpType.INVOKE, f, value)


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failing", "ended"),
    [
        ({}, OpType.OK),
        ({"begin": True}, OpType.FAIL),
        ({"send": False}, OpType.FAIL),
        ({"send": False, "abort": False}, OpType.FAIL),
        ({"commit": False}, OpType.INFO),
        ({"commit": True}, OpType.INFO),
    ],
)
async def test_only_a_commit_that_was_asked_for_leaves_doubt(
    failing: dict[str, bool], ended: OpType
) -> None:
    session = ScriptedSession()
    session.failing = failing
    done = await QueueClient(session, 2).invoke(op("txn", SENDS))
    assert done.type is ended
    assert ("commit" in session.calls) == ("send" not in failing and "begin" not in failing)


async def test_an_abort_takes_the_consumer_back() -> None:
    session = ScriptedSession()
    session.batches = [{"0": [(0, b"5")]}, {"0": [(0, b"5")]}]
    client = QueueClient(session, 2)
    await client.invoke(op("assign", ["0"]))
    done = await client.invoke(op("txn", [["poll"], *SENDS, [ABORT]]))
    assert (done.type, session.read) == (OpType.FAIL, {"0": 0})
    assert "commit" not in session.calls
    done = await client.invoke(op("txn", [["poll"]]))
    assert done.value == [["poll", {"0": [[0, 5]]}]]


async def test_an_assignment_that_failed_changes_nothing() -> None:
    session = ScriptedSession()
    client = QueueClient(session, 2)
    await client.invoke(op("assign", ["0"]))
    session.failing = {"assign": True}
    assert (await client.invoke(op("assign", ["1"]))).type is OpType.FAIL
    session.failing, session.batches = {}, [{"0": [(0, b"5")]}]
    await client.invoke(op("poll", [["poll"]]))
    await client.invoke(op("assign", ["0", "1"]))
    assert session.read == {"0": 1, "1": 0}


async def test_a_producer_that_cannot_even_abort_is_replaced() -> None:
    session = ScriptedSession()
    session.failing = {"send": False, "abort": False}
    await QueueClient(session, 2).invoke(op("txn", SENDS))
    assert session.calls[-1] == "renew_producer"


async def test_a_list_is_read_on_from_where_it_was_read() -> None:
    session = ScriptedSession()
    client = ListAppendClient(session)
    for end, batch, expected in [
        (1, {"0": [(0, b"4")]}, [4]),
        (1, {}, [4]),
        (3, {"0": [(2, b"6")]}, [4, 6]),  # at 1 there is a marker
    ]:
        session.end, session.batches = {"0": end}, [batch]
        done = await client.invoke(op("txn", [["r", "0", None], ["append", "1", 9]]))
        assert done.value == [["r", "0", expected], ["append", "1", 9]]


# --- the bank -------------------------------------------------------------------------------------


async def test_a_reader_waits_for_the_other_half_of_a_transfer_and_counts_no_later_one() -> None:
    session = ScriptedSession()
    session.end = {"0": 1, "1": 1}
    session.batches = [
        {"0": [(0, b"1 -5")], "1": [(0, b"2 -3")]},
        {"1": [(1, b"1 5"), (2, b"3 -1")], "0": [(1, b"2 3"), (2, b"3 1")]},
    ]
    done = await BankClient(session, 2).invoke(op("read"))
    assert done.value == {"0": -2, "1": 2}


async def test_a_reader_who_waits_in_vain_tells_of_the_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bank, "READ_S", 0.0)
    session = ScriptedSession()
    session.end = {"0": 2, "1": 1}
    session.batches = [{"0": [(0, b"1 -5"), (1, b"2 -3")], "1": [(0, b"1 5")]}]
    done = await BankClient(session, 2).invoke(op("read"))
    assert (done.type, done.value) == (OpType.FAIL, {"halves": [2]})


async def test_some_transfers_are_aborted_after_their_first_half() -> None:
    session = ScriptedSession()
    moved = {"from": "0", "to": "1", "amount": 2, "number": 3}
    for transfer, calls, ended in [
        (moved, ["begin", "send", "send", "commit"], OpType.OK),
        (moved | {ABORT: True}, ["begin", "send", "abort"], OpType.FAIL),
    ]:
        session.calls.clear()
        done = await BankClient(session, 2).invoke(op("transfer", transfer))
        assert (session.calls, done.type) == (calls, ended)


async def test_the_last_reader_tells_of_half_a_transfer() -> None:
    session = ScriptedSession()
    session.end = {"0": 1}
    session.batches = [{"0": [(0, b"1 -5")]}]
    done = await BankClient(session, 2).invoke(op("read", FINAL))
    assert (done.type, done.value) == (OpType.OK, {"0": -5, "1": 0})


# --- groups ---------------------------------------------------------------------------------------


def member(generation: int, *keys: str) -> GroupMembership:
    return GroupMembership("m", generation, keys)


async def test_a_member_commits_only_what_its_generation_was_handed() -> None:
    session = ScriptedSession()
    session.batches = [{"0": [(4, b"1")]}, {"1": [(7, b"2")]}]
    session.members = [member(1, "0", "1"), member(2, "1")]
    client = GroupClient(session, 2)
    polled = await client.invoke(op("poll"))
    assert polled.value == [["poll", {"0": [[4, 1]]}], ["member", "m", 1, ["0", "1"]]]
    await client.invoke(op("poll"))
    committed = await client.invoke(op("commit"))
    assert (committed.type, session.kept) == (OpType.OK, {"1": 8})


async def test_a_member_whose_poll_went_wrong_leaves_and_commits_nothing() -> None:
    session = ScriptedSession()
    session.batches, session.members = [{"0": [(0, b"1")]}], [member(1, "0")]
    client = GroupClient(session, 1)
    await client.invoke(op("poll"))
    session.failing = {"poll": True}
    assert (await client.invoke(op("poll"))).type is OpType.FAIL
    assert session.calls[-1] == "leave"
    assert (await client.invoke(op("commit"))).type is OpType.FAIL
    assert session.kept == {}


async def test_a_drain_tells_what_it_commits_and_begins_again_with_a_generation() -> None:
    session = ScriptedSession()
    session.kept, session.end = {"1": 2}, {"0": 2, "1": 2}
    session.batches = [{"0": [(0, b"1")]}, {"0": [(0, b"1"), (1, b"3")]}]
    session.members = [member(1, "0"), member(2, "0", "1")]
    drained = await GroupClient(session, 2).invoke(op("drain"))
    assert drained.value == [["poll", {"0": [[0, 1], [1, 3]]}]]
    assert session.kept == {"0": 2, "1": 2}


async def test_a_commit_whose_answer_is_lost_is_told_with_its_offsets() -> None:
    session = ScriptedSession()
    session.batches, session.members = [{"0": [(0, b"1")]}], [member(1, "0")]
    session.failing = {"commit_offsets": False}
    client = GroupClient(session, 1)
    await client.invoke(op("poll"))
    done = await client.invoke(op("commit"))
    assert (done.type, done.value) == (OpType.INFO, {"0": 1})


# --- what a test begins with ----------------------------------------------------------------------


@pytest.mark.req("J5")
async def test_a_topic_that_cannot_be_had_is_told_with_the_clusters_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_: object) -> type[Exception]:
        answer: type[Exception] = InvalidReplicationFactorError
        return answer

    monkeypatch.setattr(made, "_created", refused)
    monkeypatch.setattr(made, "PREPARE_S", made.PAUSE_S)
    environment = ExternalEnvironment(ClusterSpec(bootstrap_servers="h:1"))
    with pytest.raises(ClusterError, match=r"--replication.*InvalidReplicationFactorError"):
        await made.create_topic(environment, WorkloadOptions())
