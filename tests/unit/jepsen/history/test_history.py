"""The history's forms: JSON lines that survive a crash, EDN as Jepsen writes it, Jepsen's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen.history import HistoryError, Op, Operation, OpType, operations
from jepsen.history.edn import Keyword
from jepsen.history.formats import (
    HistoryWriter,
    from_json,
    read_edn,
    read_history,
    read_jepsen_log,
    to_json,
    write_edn,
)
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J6")

LINES = [
    Op(0, 10, 0, OpType.INVOKE, "write", [1, "ü"], key="k"),
    Op(1, 20, "nemesis", OpType.INFO, "kill", {"nodes": ["a"]}),
    Op(2, 30, 0, OpType.INFO, "write", [1, "ü"], "k", "timed out"),
]

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
names = st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True)
some_ops = st.builds(
    Op,
    st.just(0),
    st.integers(0, 2**62),
    st.integers(0, 1000) | names,
    st.sampled_from(OpType),
    names,
    plain,
    plain,
    plain,
)


def written(path: Path) -> Path:
    with HistoryWriter(path) as writer:
        for op in LINES:
            writer.append(op)
    return path


def test_a_history_is_written_and_read_back(tmp_path: Path) -> None:
    path = written(tmp_path / "history.jsonl")
    assert list(read_history(path)) == LINES
    assert path.read_text().splitlines()[0] == (
        '{"index":0,"time":10,"process":0,"type":"invoke","f":"write","value":[1,"ü"],"key":"k"}'
    )


def test_an_operation_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as writer:
        for number, op in enumerate(LINES, start=1):
            writer.append(op)
            assert len(list(read_history(path))) == number
        with pytest.raises(ValueError, match="as number 3"):
            writer.append(LINES[0])
    with pytest.raises(FileExistsError):
        HistoryWriter(path)


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "history.jsonl")
    whole = path.read_bytes()
    for cut in (1, 5, 30):
        path.write_bytes(whole[:-cut])
        assert list(read_history(path)) == LINES[:2]


@pytest.mark.parametrize("line", ["{}", "[]", "7", "{", '{"index":0}'])
def test_what_is_no_operation_is_refused(line: str) -> None:
    with pytest.raises(HistoryError):
        from_json(line)


def test_a_missing_line_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{to_json(LINES[0])}\n{to_json(LINES[2])}\n")
    with pytest.raises(HistoryError, match="line 2 has index 2"):
        list(read_history(path))


def test_sets_are_written_in_order() -> None:
    assert '"value":[1,2,3]' in to_json(Op(0, 0, 0, OpType.OK, "read", frozenset({3, 1, 2})))
    with pytest.raises(TypeError):
        to_json(Op(0, 0, 0, OpType.OK, "read", b"bytes"))


@given(some_ops)
def test_every_operation_survives_json(op: Op) -> None:
    assert from_json(to_json(op)) == op


@given(some_ops)
def test_every_operation_survives_edn(op: Op) -> None:
    assert read_edn(write_edn([op])) == [op]


def test_edn_is_written_as_jepsen_does() -> None:
    assert write_edn(LINES).splitlines()[0] == (
        "{:index 0, :time 10, :type :invoke, :process 0, :f :write, "
        ':value #jepsen.independent/tuple ["k" [1 "ü"]]}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "[{:process 0 :type :invoke :f :read :value nil} {:process 0 :type :ok :f :read :value 3}]",
        "({:process 0, :type :invoke, :f :read} ; why\n {:process 0 :type :ok :f :read :value 3})",
        "{:process 0, :type :invoke, :f :read}\n{:process 0 :type :ok :f :read :value 3}",
        "#jepsen.history.Op{:process 0, :type :invoke, :f :read}"
        "#jepsen.history.Op{:process 0 :type :ok :f :read :value 3}",
    ],
)
def test_all_forms_of_edn_are_read(text: str) -> None:
    assert read_edn(text) == history((0, "invoke", "read", None), (0, "ok", "read", 3))


@pytest.mark.parametrize("text", ["[1]", "{:process 0}", "{:process 0 :type :no :f :a}", "[{"])
def test_other_edn_is_refused(text: str) -> None:
    with pytest.raises(HistoryError):
        read_edn(text)


def test_jepsens_log_is_read() -> None:
    text = (
        "INFO  jepsen.util - 3\t:invoke\t:cas\t[1 2]\n"
        "INFO  jepsen.core - nothing of ours\n"
        "INFO  jepsen.util - 3  :info   :cas    :timed-out\n"
        "INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n"
    )
    cas, timed_out, nemesis = read_jepsen_log(text)
    assert cas == Op(0, 0, 3, OpType.INVOKE, "cas", [1, 2])
    assert timed_out == Op(1, 1, 3, OpType.INFO, "cas", None, error=Keyword("timed-out"))
    assert not nemesis.by_client


# --- operations -----------------------------------------------------------------------------------


def test_lines_become_operations() -> None:
    lines = history(
        (0, "invoke", "read", None),
        (1, "invoke", "write", 1),
        ("nemesis", "info", "kill", None),
        (0, "ok", "read", 3),
        (1, "info", "write", None),
        (2, "invoke", "write", 2),
    )
    read, lost, unfinished = operations(lines)
    assert read == Operation(lines[0], lines[3])
    assert (read.type, read.value) == ("ok", 3)
    assert (lost.type, lost.value) == ("info", 1)
    assert (unfinished.type, unfinished.value) == ("info", 2)


@pytest.mark.parametrize(
    "lines",
    [[(0, "ok", "read", 1)], [(0, "invoke", "read", None), (0, "invoke", "read", None)]],
)
def test_a_process_does_one_thing_at_a_time(lines: list[tuple[object, ...]]) -> None:
    with pytest.raises(HistoryError, match="process 0 has"):
        operations(history(*lines))
