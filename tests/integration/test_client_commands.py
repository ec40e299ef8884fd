"""`raftctl bench produce|consume|end-to-end` and `raftctl offsets` as a user runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.integration.commands import raftctl

if TYPE_CHECKING:
    from raftctl.localcluster.cluster import LocalCluster
    from tests.integration.commands import CommandResult

TIMES = (1_700_000_000_000, 1_700_000_005_000, 1_700_000_001_000)


@pytest.fixture
def server(cluster: LocalCluster) -> list[str]:
    return ["--bootstrap-server", cluster.layout.bootstrap]


def create(server: list[str], topic: str, partitions: int) -> None:
    # Else records with old timestamps are deleted.
    shape = ["--partitions", str(partitions), "--replication-factor", "3"]
    shape += ["--config", "retention.ms=-1"]
    made = raftctl("topics", "create", topic, *shape, *server)
    assert made.status == 0, made


def bench(name: str, server: list[str], *arguments: str) -> CommandResult:
    return raftctl("bench", name, *server, *arguments, "--output", "json")


@pytest.mark.req("A1")
def test_what_produce_wrote_consume_reads(server: list[str]) -> None:
    create(server, "bench", 3)
    size = ["--num-records", "3000", "--record-size", "200"]
    props = ["--producer-props", "acks=all", "--producer-props", "batch.size=65536"]
    written = bench("produce", server, "--topic", "bench", *size, *props).document
    assert (written["records"], written["bytes"]) == (3000, 600_000)
    assert written["megabytes_per_s"] > 0
    assert 0 < written["p50_ms"] <= written["p99_ms"] <= written["max_ms"]
    read = bench("consume", server, "--topic", "bench", "--num-records", "3000").document
    assert (read["records"], read["bytes"]) == (3000, 600_000)
    assert 0 < read["seconds_to_first_record"] <= read["seconds"]
    ends = raftctl("offsets", *server, "--topic", "bench", "--output", "json").document
    assert [one["partition"] for one in ends] == [0, 1, 2]
    assert sum(one["offset"] for one in ends) == 3000


@pytest.mark.req("A1")
def test_a_throughput_is_kept(server: list[str]) -> None:
    create(server, "paced", 1)
    paced = ["--num-records", "200", "--throughput", "200"]
    told = bench("produce", server, "--topic", "paced", *paced).document
    # The last of 200 records is due after 199/200 s.
    assert told["seconds"] >= 0.995


@pytest.mark.req("A1")
def test_consume_that_gets_too_few_says_so(server: list[str]) -> None:
    create(server, "empty", 1)
    wait = ["--num-records", "1", "--timeout", "300"]
    told = bench("consume", server, "--topic", "empty", *wait)
    assert told.status == 1
    assert "no record for 300 ms after 0 of 1" in told.stderr
    told = bench("consume", server, "--topic", "bench-none", "--num-records", "1")
    assert told.status == 1
    assert "no topic bench-none" in told.stderr


@pytest.mark.req("A1")
@pytest.mark.parametrize("throughput", ["-1", "500"])
def test_end_to_end_sees_every_record(server: list[str], throughput: str) -> None:
    topic = f"through{throughput}"
    create(server, topic, 2)
    paced = ["--num-records", "100", "--throughput", throughput]
    told = bench("end-to-end", server, "--topic", topic, *paced).document
    assert told["records"] == 100
    assert 0 < told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]


@pytest.mark.req("A1", "L7")
def test_offsets_by_time(cluster: LocalCluster, server: list[str]) -> None:
    create(server, "times", 2)
    producer = Producer({"bootstrap.servers": cluster.layout.bootstrap})
    for time in TIMES:
        producer.produce("times", b"x", partition=0, timestamp=time)
    assert producer.flush(30) == 0

    def offsets(*arguments: str) -> list[tuple[int, int]]:
        told = raftctl("offsets", *server, "--topic", "tim.*", *arguments, "--output", "json")
        return [(one["partition"], one["offset"]) for one in told.document]

    assert offsets() == [(0, 3), (1, 0)]
    assert offsets("--time", "-1") == offsets("--time", "latest") == [(0, 3), (1, 0)]
    assert offsets("--time", "-2") == offsets("--time", "earliest") == [(0, 0), (1, 0)]
    # What has no such record is left out.
    assert offsets("--time", "-3") == offsets("--time", "max-timestamp") == [(0, 1)]
    assert offsets("--time", str(TIMES[0] + 1)) == [(0, 1)]
    assert offsets("--time", str(TIMES[1] + 1)) == []
    assert offsets("--partitions", "1") == [(1, 0)]
    lines = raftctl("offsets", *server, "--topic", "times").stdout.splitlines()
    assert lines == [
        "TOPIC  PARTITION  OFFSET",
        "times          0       3",
        "times          1       0",
    ]
    none = raftctl("offsets", *server, "--topic", "times", "--partitions", "7")
    assert none.status == 1
    assert "no partition matches" in none.stderr


@pytest.mark.req("A2")
def test_where_there_is_nothing_to_show_or_do_a_sentence_says_so(
    cluster: LocalCluster, server: list[str]
) -> None:
    """Fails for headings without rows, and for a wait for records that cannot come."""
    create(server, "said", 1)
    elected = raftctl("elect-leaders", "--partition", "said:0", *server)
    assert "ELECTION_NOT_NEEDED" in elected.stdout
    unavailable = raftctl("partitions", "list", "--topic", "said", "--unavailable", *server)
    assert unavailable.stdout == "no such partition\n"
    dead = raftctl("groups", "list", "--state", "dead", *server)
    assert dead.stdout == "no group is in these states\n"
    one = ["console", "consume", "--topic", "said", "--partition", "0"]
    refused = raftctl(*one, "--offset", "41", *server)
    assert refused.status == 1
    assert "OFFSET_OUT_OF_RANGE: --offset 41: records begin at 0, and the next one gets 0" in (
        refused.stderr
    )
    at_the_end = raftctl(*one, "--offset", "0", "--max-messages", "1", "--timeout-ms", "1", *server)
    assert "no record for 1 ms" in at_the_end.stderr


@pytest.mark.req("A2")
def test_the_quorum_is_told_without_options_and_a_leader_is_not_elected_twice(
    cluster: LocalCluster,
) -> None:
    controllers = ["--controllers", ",".join(one.address for one in cluster.layout.controllers)]
    told = raftctl("quorum", "describe", *controllers, "--output", "json").document
    again = raftctl("quorum", "transfer", "--to", str(told["LeaderId"]), *controllers)
    assert (again.status, again.stdout) == (0, f"node {told['LeaderId']} leads already\n")


@pytest.mark.req("A2")
def test_a_deleted_group_is_told_in_a_sentence(server: list[str]) -> None:
    create(server, "grouped", 1)
    ends = ["--topic", "grouped", "--to", "earliest"]
    made = raftctl("groups", "reset-offsets", "forgotten", *ends, *server)
    assert made.status == 0, made
    deleted = raftctl("groups", "delete", "forgotten", *server)
    assert (deleted.status, deleted.stdout) == (0, "deleted forgotten\n")
