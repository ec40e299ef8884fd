"""`jepsen spark check` as people use it: the verdicts of one process, key by key."""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.replication import trace
from jepsen.cli.main import run
from jepsen.history import Op, OpType
from jepsen.history.formats import to_json, write_edn
from jepsen.report.steps import HISTORIES_PLOTTED_MAX
from jepsen.spark.recipe import Recipe
from tests.kit.spark import logs as spark_logs
from tests.kit.spark import traces as spark_traces
from tests.kit.spark import txns as spark_txns
from tests.kit.spark.equality import (
    CHUNK_OPERATIONS,
    HOT_OPERATIONS,
    compare,
    generated,
    random_histories,
    write_table,
)
from tests.kit.spark.sessions import quick_session
from tests.unit.jepsen.histories import KNOWN, history, known

pyspark = pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = history(
    (0, "invoke", "write", 1),
    (0, "ok", "write", 1),
    (1, "invoke", "read", None),
    (1, "ok", "read", 1),
)
BAD = [*GOOD[:3], history(*[(1, "ok", "read", 2)] * 4)[3]]

_MS = 1_000_000
_LINES = (
    (0, "invoke", "write", 1, 0),
    (0, "ok", "write", 1, 400),
    (1, "invoke", "read", None, 600),
    (2, "invoke", "read", None, 800),
    (1, "ok", "read", 1, 900),
    (2, "ok", "read", 1, 1300),
    (3, "invoke", "cas", [5, 6], 1600),
    (3, "fail", "cas", [5, 6], 2000),
    (4, "invoke", "write", 2, 2400),
    (4, "info", "write", 2, 2800),
    (5, "invoke", "write", 9, 3200),
)
TIMED = [
    replace(op, time=line[-1] * _MS)
    for op, line in zip(history(*(line[:-1] for line in _LINES)), _LINES, strict=True)
]
"""Lines with their milliseconds; the last operation never ends."""

# A machine that is busy with other things gives a JVM its time late.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[Any]:
    """All commands of this file find it running, which saves each the start of a JVM."""
    from jepsen.spark.session import java_missing

    missing = java_missing()
    if missing:
        pytest.skip(missing)
    with quick_session("local[1]") as spark:
        yield spark


def _lines(path: Path, lines: list[Any]) -> str:
    path.write_text("".join(to_json(op) + "\n" for op in lines))
    return str(path)


def _series(path: Path, name: str) -> list[tuple[Any, ...]]:
    """The rows of a history, without its name."""
    import pyarrow.parquet as pq

    rows = pq.read_table(path).to_pylist()
    return [tuple(row.values())[1:] for row in rows if row["history"] == name]


@pytest.mark.req("J7")
def test_random_histories_get_the_verdicts_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small histories have hot keys, too.
    monkeypatch.setattr("jepsen.spark.registers.HOT_OPERATIONS", HOT_OPERATIONS)
    monkeypatch.setattr("jepsen.spark.registers.CHUNK_OPERATIONS", CHUNK_OPERATIONS)
    made = {
        recipe.workload: generated(recipe, tmp_path)
        for recipe in (
            Recipe("register", 400, 20, 4, crashes=0.1),
            Recipe("unique-register", 400, 20, 4, crashes=0.1),
        )
    }
    differing, methods = compare(random_histories(200, 0) | made, tmp_path)
    assert differing == {}
    assert min(methods["search true"], methods["search false"]) > 50
    assert methods["segments true"] > 10


@pytest.mark.req("J7")
def test_the_compiled_search_gives_the_verdicts_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="needs raftctl[spark]")
    monkeypatch.setattr("jepsen.spark.registers.KERNEL_OPERATIONS", 0)
    monkeypatch.setattr("jepsen.spark.registers.WHOLE_OPERATIONS_MAX", HOT_OPERATIONS)
    monkeypatch.setattr("jepsen.spark.registers.HOT_OPERATIONS", HOT_OPERATIONS)
    differing, methods = compare(random_histories(100, 1000), tmp_path)
    assert differing == {}
    assert methods["kernel true"] > 50
    assert methods["search false"] > 10
    # Nothing is left: the verdicts are those of the compiled search alone.
    valid = {"made": generated(Recipe("register", 400, 20, crashes=0.1), tmp_path)}
    (tmp_path / "valid").mkdir()
    differing, methods = compare(valid, tmp_path / "valid")
    assert (differing, methods) == ({}, {"kernel true": 20})


@pytest.mark.req("J7")
def test_tables_that_are_no_files_come_to_the_same(session: Any, tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="needs raftctl[spark]")
    from jepsen.compiled.codes import VALID
    from jepsen.spark.input import load
    from jepsen.spark.registers import judge_all, rest_of

    write_table(random_histories(20, 0), tmp_path / "some.parquet")
    files = load(session, [str(tmp_path / "some.parquet")], "auto", tmp_path)
    judged = [sorted(judge_all(files, None).collect())]
    rows = replace(files, pieces=())
    judged.append(sorted(judge_all(rows, None).collect()))
    assert judged[0] == judged[1]
    names = [(one["history"], one["key"]) for one in judged[0] if one["verdict"] != VALID]
    left = session.createDataFrame(names, "history string, key string")
    rest = [sorted(map(str, rest_of(one, left, len(names)).collect())) for one in (files, rows)]
    assert rest[0] == rest[1] != []


@pytest.mark.req("J7")
def test_random_logs_have_the_anomalies_of_one_process(tmp_path: Path) -> None:
    made = generated(Recipe("log", 400, 2, 14), tmp_path)
    histories = {**spark_logs.random_logs(200, 0), "made": made}
    differing, kinds = spark_logs.compare(histories, tmp_path)
    assert differing == []
    assert kinds.keys() == {
        "G1a",
        "G1c",
        "G1c-process",
        "G1c-realtime",
        "committed-offset-regression",
        "duplicate",
        "inconsistent-offsets",
        "int-nonmonotonic-poll",
        "int-nonmonotonic-send",
        "int-poll-skip",
        "int-send-skip",
        "lost-write",
        "nonmonotonic-poll",
        "nonmonotonic-send",
        "poll-skip",
        "precommitted-read",
        "spurious-zero-offset",
        "torn-transaction",
        "unexpected",
        "unseen",
    }


@pytest.mark.req("J7")
def test_cycles_of_logs_are_those_of_one_process(tmp_path: Path) -> None:
    differing, kinds = spark_logs.compare(spark_logs.CYCLES, tmp_path)
    assert differing == []
    assert (kinds["G1c"], kinds["G1c-process"], kinds["G1c-realtime"]) == (2, 1, 1)
    found, _ = spark_logs.found_on_spark(tmp_path / "logs.parquet", tmp_path / "again")
    cycles = {
        name: [(*json.loads(detail)["cycle"],) for kind, detail, _ in mine if kind[:3] == "G1c"]
        for name, mine in found.items()
    }
    assert cycles == {
        "both": [(3, 2, 3)],
        "texts": [(4, 3, 4)],
        "early": [(3, 1, 3)],
        "again": [(9, 5, 9)],
    }


@pytest.mark.req("J7")
def test_logs_without_cycles_are_not_searched_for_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("searched for cycles")

    monkeypatch.setattr("jepsen.spark.logs._kafka.log_cycles", never)
    alone = {
        "made": generated(Recipe("log", 400, 2, 14), tmp_path),
        "sends": spark_logs.at_once([["send", "x", [0, 1]]], [["poll", {"x": [[0, 1]]}]]),
    }
    differing, kinds = spark_logs.compare(alone, tmp_path)
    assert differing == []
    assert not any(kind.startswith("G1c") for kind in kinds)


@pytest.mark.req("J7")
def test_random_transactions_have_the_anomalies_of_one_process(tmp_path: Path) -> None:
    reads = [["r", "x", None]], [["r", "x", []]]
    histories = {
        **spark_txns.many_txns(200, 0),
        "unread": history(*((0, kind, "txn", [["append", "x", 1]]) for kind in ("invoke", "ok"))),
        "other": history(*((0, kind, "read", None) for kind in ("invoke", "ok"))),
        "read": history((0, "invoke", "txn", reads[0]), (0, "ok", "txn", reads[1])),
    }
    differing, kinds = spark_txns.compare(histories, tmp_path)
    assert differing == []
    frequent = ("G0", "G1a", "G1b", "G1c", "G-single-item", "internal", "lost-update")
    assert min(kinds[kind] for kind in frequent) > 10
    assert min(kinds[kind] for kind in ("future-read", "dirty-update", "G2-item")) > 0
    assert kinds["G1c-realtime"] + kinds["G0-realtime"] + kinds["G-single-item-realtime"] > 0
    differing, kinds = spark_txns.compare(
        histories, tmp_path, consistency="strong-session-snapshot-isolation"
    )
    assert differing == []
    assert any(kind.endswith("-process") for kind in kinds)


@pytest.mark.req("J7")
def test_checkers_of_whole_histories_judge_many_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adds = [(0, "invoke", "add", 1), (0, "ok", "add", 1), (1, "invoke", "read", None)]
    lines = {
        "kept": history(*adds, (1, "ok", "read", [1])),
        "lost": history(*adds, (1, "ok", "read", [])),
        "unread": history(*adds[:2]),
    }
    table = str(tmp_path / "sets.parquet")
    write_table(lines, tmp_path / "sets.parquet")
    assert run(["spark", "check", table, "--checker", "set"]) == 1
    said = capsys.readouterr()
    words = {"kept": "valid", "lost": "invalid", "unread": "unknown"}
    shown = [f"{table}:{name} {word}" for name, word in words.items()]
    assert said.out.splitlines() == [*shown, "all invalid"]
    assert "lost (1)" in said.err
    assert "no read has succeeded" in said.err


@pytest.mark.req("J6", "J7")
def test_every_form_is_read_and_what_is_found_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    good = _lines(tmp_path / "good.jsonl", GOOD)
    bad = _lines(tmp_path / "bad.jsonl", BAD)
    edn = tmp_path / "bad.edn"
    edn.write_text(write_edn(BAD))
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "test.json").write_text("{}")
    _lines(run_folder / "history.jsonl", GOOD)
    table = tmp_path / "table.parquet"
    write_table({"a": TIMED, "b": BAD}, table)
    assert run(["check", bad, "--output", "json"]) == 1
    (in_one_process,) = json.loads(capsys.readouterr().out)
    kept = tmp_path / "kept"
    files = [good, bad, str(edn), str(run_folder), str(table)]
    assert run(["spark", "check", *files, "--output", str(kept), "--print", "json"]) == 1
    on_spark = {one["file"]: one for one in json.loads(capsys.readouterr().out)}
    assert {name: one["valid"] for name, one in on_spark.items()} == {
        good: True,
        bad: False,
        str(edn): False,
        str(run_folder): True,
        f"{table}:a": True,
        f"{table}:b": False,
    }
    assert on_spark[bad]["anomalies"] == in_one_process["anomalies"]
    assert pq.read_table(kept / "anomalies").column("name").to_pylist() == ["nonlinearizable"] * 3
    page = (kept / "report.html").read_text()
    assert "nonlinearizable" in page
    # Of the first histories: functions that succeeded, and the rate.
    (of_run,) = [one for one in page.split("<h2>") if one.startswith(f"{run_folder}<")]
    assert re.findall(r'<svg [^>]* aria-label="([^"]*)"', of_run) == [
        "Latency of read",
        "Latency of write",
        "Rate",
    ]
    assert page.count("<h3>Rate</h3>") == HISTORIES_PLOTTED_MAX
    assert _series(kept / "latency", f"{table}:a") == [
        ("read", "ok", 0, 2, 300 * _MS, 500 * _MS, 500 * _MS, 500 * _MS),
        ("write", "ok", 0, 1, *[400 * _MS] * 4),
        ("cas", "fail", 1, 1, *[400 * _MS] * 4),
        ("write", "info", 2, 1, *[400 * _MS] * 4),
    ]
    assert _series(kept / "availability", f"{table}:a") == [
        ("read", 0, 1, 0, 0),
        ("write", 0, 1, 0, 0),
        ("read", 1, 1, 0, 0),
        ("cas", 2, 0, 1, 0),
        ("write", 2, 0, 0, 1),
        ("write", 3, 0, 0, 1),
    ]
    assert run(["spark", "check", bad, "--output", str(kept)]) == 254
    assert "exists already" in capsys.readouterr().err


@pytest.mark.req("J7")
def test_a_search_that_runs_out_is_unknown_and_nothing_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[tuple[Any, ...]] = [
        (number, "invoke", "cas", [number, number + 1]) for number in range(14)
    ]
    lines += [(number + 20, "invoke", "write", number) for number in range(14)]
    lines += [(number + 20, "ok", "write", number) for number in range(14)]
    wide = _lines(tmp_path / "wide", history(*lines))
    idle = _lines(tmp_path / "idle", history(("nemesis", "info", "kill", None)))
    assert run(["spark", "check", wide, idle, "--time-limit", "0"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"{wide} unknown",
        f"{idle} valid",
        "all unknown",
    ]


@pytest.mark.req("J7")
def test_what_cannot_be_judged_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"key": ["1"]}), other)
    empty = tmp_path / "empty"
    empty.mkdir()
    good = _lines(tmp_path / "good", GOOD)
    for arguments, word in (
        ([str(other)], "lacks the column process"),
        ([str(empty)], "neither a run"),
        ([str(tmp_path / "absent")], "No such file"),
        ([good, "--checker", "nonsense"], "--checker nonsense"),
        ([good, "--model", "mutex"], "choose another --checker or --model"),
    ):
        assert run(["spark", "check", *arguments]) == 254
        assert word in capsys.readouterr().err


@pytest.mark.req("J7")
def test_a_machine_without_java_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jepsen.spark.session import java_missing

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "install Java 17" in java_missing()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    assert "is older: install Java 17" in java_missing()


@pytest.mark.req("J7")
def test_workers_keep_the_memory_of_arrays(session: Any) -> None:
    tunables = (
        session.sparkContext.parallelize([0], 1)
        .map(lambda _: os.environ["GLIBC_TUNABLES"])
        .collect()
    )
    assert "glibc.malloc.trim_threshold=2147483648" in tunables[0].split(":")


@pytest.mark.req("J7")
def test_a_lost_write_is_told_while_the_writer_goes_on(
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "history.jsonl"
    parts: list[list[tuple[Any, ...]]] = [
        [
            *((0, kind, "put", "1", "a") for kind in ("invoke", "ok")),
            (2, "invoke", "put", "3", "a"),  # still open when it is read
            *((1, kind, "put", "7", "b") for kind in ("invoke", "ok")),
        ],
        [
            *((1, "invoke", "get", None, "a"), (1, "ok", "get", "3", "a")),
            *((0, kind, "put", "2", "a") for kind in ("invoke", "ok")),
            *((1, "invoke", "get", None, "a"), (1, "ok", "get", "3", "a")),
        ],
        [(1, "invoke", "get", None, "b"), (1, "ok", "get", "7", "b")],
    ]
    lines = iter(history(*(line for part in parts for line in part)))
    seen: list[Any] = []

    def write_more(one: Any = None) -> bool:
        """The writer: it goes on as soon as it is told what has become of the part before."""
        seen.extend([one] if one else [])
        part = parts[len(seen)] if len(seen) < len(parts) else []
        with path.open("a") as file:
            file.writelines(to_json(next(lines)) + "\n" for _ in part)
        return bool(part)

    write_more()
    monkeypatch.setattr("jepsen.cli.spark.say_seen", write_more)
    assert run(["spark", "watch", str(path), "--model", "kv", "--idle", "600"]) == 1
    assert capsys.readouterr().out == f"{path} invalid\n"
    assert [
        (one.operations, one.verdict.valid, [found.name for found in one.verdict.anomalies])
        for one in seen
    ] == [(2, True, []), (5, False, ["nonlinearizable"]), (6, False, [])]
    # Registered by then, the history is a table for everybody.
    assert session.read.format("jepsen-history").load(str(path)).count() == 7
    with path.open("a") as file:
        file.write(to_json(GOOD[0]) + "\n")
    assert run(["spark", "watch", str(path), "--model", "kv"]) == 254
    assert "line 14 has index 0" in capsys.readouterr().err


@pytest.mark.req("J4", "J7")
def test_random_traces_have_the_anomalies_of_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = spark_traces.in_parts(spark_traces.random_traces(60, 0), 2)
    differing, kinds = spark_traces.compare({**traces, "no server tells": GOOD}, tmp_path)
    assert differing == []
    assert min(kinds[name] for name in trace.ANOMALIES) > 5
    bad = _lines(tmp_path / "bad", [Op(0, 0, "b-1", OpType.INFO, "replica", {"epoch": 1}, "a-0")])
    for command in (["check"], ["spark", "check"]):
        assert run([*command, bad, "--checker", "trace"]) == 254
        assert "bad: line 0: replica needs a partition as key, and leads" in capsys.readouterr().err
    assert run(["spark", "watch", bad, "--checker", "trace"]) == 254


@pytest.mark.req("J7")
def test_replicas_are_compared_as_in_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)
    dumps = [tmp_path / name for name in "abc"]
    for path in dumps:
        lines = []
        for log in range(3):
            lines.append(f"Dumping /data/log-{log}/0.log")
            for offset in range(rng.randint(0, 9), rng.randint(70, 99)):
                value = rng.choice(("other", *[offset] * 50))
                lines += [f"| offset: {offset} payload: {value}"] * rng.choice((1, 1, 2))
        path.write_text("\n".join(lines))
    arguments = [*map(str, dumps), "--output", "json"]
    found = [
        (run([*command, *arguments]), json.loads(capsys.readouterr().out))
        for command in (["replicas"], ["spark", "replicas"])
    ]
    assert found[0] == found[1]
    status, document = found[0]
    assert status == 1
    assert document["statistics"]["diverged"] > 5
    dumps[0].write_text("{")
    assert run(["spark", "replicas", *arguments]) == 254
    assert "a: line 1: not a dump of a log" in capsys.readouterr().err


@pytest.mark.req("J7")
@pytest.mark.parametrize(("origin", "column"), KNOWN)
def test_known_histories_get_their_verdicts(
    histories: Path, origin: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, by_model = known(histories, origin, column)
    found: dict[str, object] = {}
    for model, files in by_model.items():
        run(["spark", "check", *files, "--model", model, "--print", "json"])
        found |= {one["file"]: one["valid"] for one in json.loads(capsys.readouterr().out)}
    assert found == wanted
