"""Arguments of `offsets` and `bench produce|consume|end-to-end`: what is refused, and why."""

from __future__ import annotations

import pytest

from raftctl.cli.kafka.offsets import parse_partitions, parse_topics
from raftctl.cli.main import run

SERVER = ["--bootstrap-server", "127.0.0.1:1"]
TOPIC = ["--topic", "t"]
COUNT = ["--num-records", "1"]
BENCH = [*SERVER, *TOPIC, *COUNT]


@pytest.mark.req("A1", "A2")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["offsets", *SERVER, "--time", "yesterday"], "--time yesterday: must be -1"),
        (["offsets", *SERVER, "--time", "-6"], "--time -6: must be -1"),
        (["offsets", *SERVER, "--partitions", "0,x"], "--partitions 0,x: write numbers"),
        (["offsets", *SERVER, "--topic", "a("], r"--topic a(: no regular expression"),
        (["bench", "produce", *BENCH, "--throughput", "0"], "--throughput 0: must be above 0"),
        (["bench", "produce", *BENCH, "--producer-props", "acks"], "--command-property acks"),
        (["bench", "produce", *BENCH, "--command-property", "x=1"], '"x"'),
        (["bench", "consume", *BENCH, "--command-property", "x=1"], '"x"'),
        (["bench", "end-to-end", *BENCH, "--producer-acks", "2"], "must be 0, 1 or all"),
        (["bench", "end-to-end", *BENCH, "--throughput", "-2"], "--throughput -2"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert run(arguments) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", *BENCH, "--record-size", "0"],
        ["produce", *SERVER, *TOPIC, "--num-records", "0"],
        ["consume", *BENCH, "--timeout", "0"],
        ["end-to-end", *BENCH, "--record-size", "15"],
    ],
)
def test_sizes_and_counts_have_bounds(arguments: list[str]) -> None:
    assert run(["bench", *arguments]) == 2


def test_topics_are_patterns_that_match_whole_names() -> None:
    pattern = parse_topics("a.*, b")
    assert pattern is not None
    names = ["a", "abc", "b", "bc", "xa"]
    assert [name for name in names if pattern.fullmatch(name)] == ["a", "abc", "b"]
    assert parse_topics(None) is None


def test_partitions_are_numbers() -> None:
    assert parse_partitions("0, 2,1") == frozenset({0, 1, 2})
    assert parse_partitions(None) is None
