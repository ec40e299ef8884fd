"""What `quorum describe` makes of a leader's status, and addresses and values as arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from raftctl.cli import quorum
from raftctl.cli._controllers import Controllers
from raftctl.cli.main import run
from raftctl.cli.quorum import replication_rows, status_document, status_text
from raftctl.errors import ConfigError, ErrorCode
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch

if TYPE_CHECKING:
    from pathlib import Path


def replica(node_id: int, lag: int, age_ms: int | None) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "log_end_offset": 50 - lag,
        "lag": lag,
        "last_fetch_age_ms": age_ms,
        "last_caught_up_age_ms": age_ms,
    }


def leader_status(*ages: int | None) -> dict[str, Any]:
    followers = [replica(number, number, age) for number, age in enumerate(ages, start=1)]
    return {
        "cluster_id": "c",
        "leader_id": 9,
        "epoch": 4,
        "high_watermark": 48,
        "voters": [*followers, replica(9, 0, 0)],
        "observers": [replica(20, 7, 3)],
    }


@pytest.mark.req("A1", "Q5")
def test_the_status_tells_the_greatest_lag_of_a_voter() -> None:
    document = status_document(leader_status(10, 30))
    assert document == {
        "ClusterId": "c",
        "LeaderId": 9,
        "LeaderEpoch": 4,
        "HighWatermark": 48,
        "MaxFollowerLag": 2,
        "MaxFollowerLagTimeMs": 30,
        "CurrentVoters": [{"id": 1}, {"id": 2}, {"id": 9}],
        "CurrentObservers": [{"id": 20}],
    }
    lines = status_text(document).splitlines()
    assert lines[1] == "LeaderId:             9"
    assert lines[6] == 'CurrentVoters:        [{"id": 1}, {"id": 2}, {"id": 9}]'
    assert status_document(leader_status(10, None))["MaxFollowerLagTimeMs"] == -1
    assert status_document(leader_status())["MaxFollowerLagTimeMs"] == 0


@pytest.mark.req("A1", "Q5")
def test_every_replica_has_a_row_the_leader_first() -> None:
    rows = replication_rows(leader_status(10, None), 1_000)
    assert [(row["NodeId"], row["Status"]) for row in rows] == [
        (9, "Leader"),
        (1, "Follower"),
        (2, "Follower"),
        (20, "Observer"),
    ]
    assert [row["LastCaughtUpTimestamp"] for row in rows] == [1_000, 990, -1, 997]
    in_words = replication_rows(leader_status(10, None), None)
    assert [row["LastFetchTimestamp"] for row in in_words][1:3] == ["10 ms ago", None]


@pytest.mark.req("Q7")
@pytest.mark.parametrize(
    "change",
    [
        ["add-voter", "--voter", "4@h:1:AAAAAAAAAAAAAAAAAAAAAg"],
        [
            *["remove-voter", "--controller-id", "4"],
            *["--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAg"],
        ],
        ["transfer", "--to", "4"],
    ],
)
def test_each_change_says_what_was_seen_of_the_quorum_as_it_was_asked(
    change: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes late, after its repetition and what was done since, is told by it."""
    looked = [{"epoch": 4, "voters_offset": 7}, {"epoch": 5, "voters_offset": 9}]
    answers = [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE]
    seen: list[OffsetAndEpoch | None] = []

    async def call(_quorum: Controllers, *asked: Any) -> Any:
        request = asked[-1]
        seen.append(request.seen)
        return answers.pop(0)

    monkeypatch.setattr(Controllers, "find_leader", lambda *_: ("h:1", looked.pop(0)))
    monkeypatch.setattr(quorum, "_call", call)
    assert run(["quorum", *change, "--controllers", "h:1"]) == 0
    assert seen == [OffsetAndEpoch(Offset(7), Epoch(4)), OffsetAndEpoch(Offset(9), Epoch(5))]


@pytest.mark.req("A2")
@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:x", "h:70000", "a:1,b"])
def test_controllers_are_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="--controllers"):
        _ = Controllers(controllers=text).addresses


def test_several_controllers_may_be_named() -> None:
    assert Controllers(controllers="a:1, [::1]:2").addresses == ["a:1", "[::1]:2"]


@pytest.mark.req("A2")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["quorum", "describe", "--status", "--replication"], "either --status"),
        (["kv", "cas", "k", "v"], "give --expect-version"),
        (["kv", "cas", "k", "v", "--expect-absent", "--expect-value", "x"], "no other expectation"),
        (["kv", "cas", "k", "v", "--expect-version", "-1"], "at least 0"),
        (["kv", "put", "\udc80", "v"], "UTF-8"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--controllers", "127.0.0.1:1"]) == 2
    assert why in capsys.readouterr().err


def test_who_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "get", "k", "--controllers", "127.0.0.1:1"]) == 1
    assert "no controller answers at 127.0.0.1:1" in capsys.readouterr().err


def test_a_file_that_all_may_read_is_told_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="ann" password="of-ann";\n'
    )
    path.chmod(0o644)
    quorum = Controllers(controllers="127.0.0.1:1", command_config=str(path))
    assert quorum.security.login == ("ann", "of-ann")
    assert quorum.client_security.login is not None
    assert capsys.readouterr().err.count("all users may read it") == 1
