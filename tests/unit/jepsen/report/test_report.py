"""Reports: what went wrong is on the page, which needs nothing outside itself."""

from __future__ import annotations

import http.client
import re
import threading
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.registry import linearizable
from jepsen.checkers.verdict import verdict_document
from jepsen.cli.commands.report import FAVICON, page_of, server
from jepsen.cli.main import run
from jepsen.core.spec import RunSpec
from jepsen.history import Op, OpType
from jepsen.report import readable_time, report_page
from jepsen.report._page import (
    ANOMALIES_SHOWN_MAX,
    KINDS_OPEN_MAX,
    NO_VERDICT,
    TEXT_SHOWN_MAX,
    Row,
    index_page,
    texts_of,
)
from jepsen.report._plots import (
    LEFT,
    WIDTH,
    failing_window,
    leader_strip,
    quantile_plot,
    quantile_plots,
    windows,
)
from jepsen.report._tables import fault_table, format_statistics
from jepsen.store import RunFolder
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J8")
LINES: list[tuple[int | str, str, str, object]] = [
    (0, "invoke", "write", 1),
    (0, "ok", "write", 1),
    ("nemesis", "invoke", "kill", "one"),
    ("nemesis", "info", "kill", ["broker-1"]),
    (1, "invoke", "read", None),
    (1, "ok", "read", "<script>4711</script>"),
    ("nemesis", "invoke", "start", None),
    ("nemesis", "info", "start", ["broker-1"]),
    ("nemesis", "info", "pause", ["broker-2"]),
    ("nemesis", "info", "heal-all", None),
]
HISTORY = [
    Op(at, at * 10**9, process, OpType(kind), f, value, None if process == "nemesis" else 0)
    for at, (process, kind, f, value) in enumerate(LINES)
]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, RunSpec("register", "sim", ("kill",), seed=99), "again --now")
    with made.writer() as writer:
        for op in HISTORY:
            writer.append(op)
    return made


class Outside(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag in ("script", "link", "img", "iframe") or names & {"src", "onclick"}:
            self.found.append(tag)


def test_a_page_tells_what_went_wrong_and_how_to_see_it_again(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folder.path)]) == 0
    assert capsys.readouterr().out.strip() == str(folder.path / "report.html")
    page = (folder.path / "report.html").read_text()
    for wanted in ("invalid", "nonlinearizable", "4711", "again --now", "seed 99", "broker-1"):
        assert wanted in page
    outside = Outside()
    outside.feed(page)
    assert outside.found == []


def test_an_anomaly_and_its_place_in_the_plot_lead_to_each_other(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folder.path)]) == 0
    page = (folder.path / "report.html").read_text()
    plot, _, told = page.partition("<h2>Anomalies</h2>")
    stripe = r'<a href="#anomaly-1"><rect id="mark-1"[^>]* x="([0-9.]+)" y="0" width="([0-9.]+)"'
    # From the write that was not read to the end of the read, of nine seconds.
    (place,) = re.findall(stripe, plot)
    assert [float(one) for one in place] == [LEFT, 5 / 9 * (WIDTH - LEFT)]
    assert '<h3 id="anomaly-1">' in told
    assert '<a href="#mark-1">in the plot</a>' in told


def test_the_failing_window_is_drawn() -> None:
    lines = history(
        (0, "invoke", "write", 1),
        (0, "ok", "write", 1),
        (1, "invoke", "write", 2),
        (2, "invoke", "read", None),
        (3, "invoke", "write", 3, "another key"),
        (2, "ok", "read", 7),
    )
    verdict = verdict_document(linearizable(Register())(lines))
    drawn = failing_window(verdict["anomalies"][0], lines)
    for label in ("write 1, returned", "write 2 ?, under way", "read → 7, does not fit"):
        assert label in drawn
    assert "another key" not in drawn
    assert "process 3" not in drawn


def test_the_leader_and_its_epoch_are_a_strip() -> None:
    assert leader_strip(HISTORY) == ""
    seen = [
        Op(at, at * 10**9, "observer", OpType.INFO, "leader", value)
        for at, value in enumerate([["controller-1", 3], ["controller-2", 5]])
    ]
    strip = leader_strip([*seen, Op(2, 4 * 10**9, 0, OpType.INVOKE, "read")])
    assert "controller-1, epoch 3 from 0.0 s" in strip
    assert "controller-2, epoch 5 from 1.0 s" in strip


def test_quantiles_are_of_what_succeeded() -> None:
    lines = []
    for at, (kind, ms) in enumerate([("ok", 1), ("ok", 100), ("fail", 100_000)]):
        begin = at * 10**9
        lines.append(Op(2 * at, begin, 0, OpType.INVOKE, "read"))
        lines.append(Op(2 * at + 1, begin + ms * 10**6, 0, OpType(kind), "read"))
    plot = quantile_plot(lines, [])
    assert plot.count("<polyline") == 4
    assert "100 ms" in plot
    assert ">1 s<" not in plot


def test_each_function_has_its_own_latency() -> None:
    """A poll that waits for records takes as long as it may: that is not what a send takes."""
    calls = [("send", 2), ("poll", 200), ("send", 3), ("txn", 5)]
    lines = []
    for at, (f, ms) in enumerate(calls):
        lines.append(Op(2 * at, at * 10**9, 0, OpType.INVOKE, f, None))
        lines.append(Op(2 * at + 1, at * 10**9 + ms * 10**6, 0, OpType.OK, f, None))
    plots = quantile_plots(lines, [])
    assert next(iter(plots)) == "send"
    assert ">100 ms<" not in plots["send"]
    assert ">100 ms<" in plots["poll"]
    results = {"valid": True, "operations": len(calls), "checkers": {}}
    page = report_page(RunSpec("queue", "sim"), "", results, lines)
    shown, _, hidden = page.partition("show 1 more functions")
    assert "Latency of successful send, by percentile" in shown
    assert "Latency of successful txn, by percentile" in hidden


def test_the_index_shows_the_latest_verdict_of_each_pair() -> None:
    rows = [
        Row("/b", "b", "2", "invalid", "set", "kill"),
        Row("/a", "a", "1", "valid", "set", "kill"),
        Row("/c", "c", "0", "unknown", "queue", "none"),
    ]
    page = index_page(rows, "queue")
    matrix, _, listed = page.partition("All runs")
    assert matrix.count('href="/b"') == 1
    assert 'href="/a"' not in matrix
    assert 'href="/c"' in listed
    assert 'href="/b"' not in listed


def test_an_environment_takes_nothing_from_the_verdict_of_another() -> None:
    rows = [
        Row("/2", "b", "2", "unknown", "queue", "kill", "external"),
        Row("/1", "a", "1", "valid", "queue", "kill", "sim"),
    ]
    matrix = index_page(rows).partition("<h2>All runs")[0]
    assert 'href="/1"' in matrix
    assert 'href="/2"' in matrix
    assert "in external" in matrix


def test_the_list_tells_what_happened_in_a_run() -> None:
    anomalies = [{"name": "lost-write", "lines": []}] * 2
    results = {
        "operations": 1037,
        "seconds": 24.2,
        "faults": {"kill": 2, "pause": 0},
        "checkers": {
            "kafka": {"anomalies": anomalies, "statistics": {}},
            "availability": {"anomalies": [], "statistics": {}, "why_unknown": "never: <b>"},
        },
    }
    spec = RunSpec("queue", "sim", ("kill", "pause"), seed=77)
    told = texts_of(spec, results)
    assert told == ("kill 2, pause 0", "1037", "24 s", "77", "lost-write 2; never: <b>")
    page = index_page([Row("/1", "a", "1", "invalid", "queue", "kill", "sim", told)])
    for text in ("kill 2, pause 0", "1037", "24 s", "lost-write 2; never: &lt;b&gt;"):
        assert f">{text}</td>" in page
    assert texts_of(spec, None) == ("", "", "", "77", "")


def test_times_in_which_something_is_broken_are_shaded() -> None:
    found = [(one.kind, one.begin_s, one.end_s) for one in windows(HISTORY)]
    assert found == [("kill", 3.0, 7.0), ("pause", 8.0, 9.0)]


def test_what_nobody_mended_is_broken_to_the_end() -> None:
    assert [(one.kind, one.end_s) for one in windows(HISTORY[:6])] == [("kill", 5.0)]


def test_a_page_of_an_empty_history_can_be_made(tmp_path: Path) -> None:
    empty = RunFolder.create(tmp_path, RunSpec("set", "sim"), "")
    assert run(["report", str(empty.path)]) == 0
    assert "unknown" in (empty.path / "report.html").read_text()


def test_a_browser_sees_all_runs_and_nothing_else(folder: RunFolder, tmp_path: Path) -> None:
    run(["report", str(folder.path)])
    (tmp_path / "secret.html").write_text("secret")
    with server(tmp_path, 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            port = running.server_address[1]
            index = get(port, "/")
            path = f"/register-sim-kill/{folder.path.name}"
            assert path in index[1]
            assert "nonlinearizable" in get(port, path)[1]
            assert path in get(port, "/?workload=register&nemesis=kill")[1]
            assert get(port, "/?workload=set")[1].count(path) == 1  # in the matrix alone
            assert '<a href="/">All runs</a>' in get(port, path)[1]
            assert get(port, "/favicon.ico") == (200, FAVICON)
            assert get(port, "/../secret.html")[0] == 404
            assert get(port, "/secret.html")[0] == 404
        finally:
            running.shutdown()
            thread.join()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("words", [["report", "nowhere"], ["serve", "--store", "nowhere"]])
def test_what_is_not_there_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 254
    assert "nowhere" in capsys.readouterr().err


def test_an_invalid_run_names_every_kind_and_stays_short(folder: RunFolder) -> None:
    many = [{"name": "duplicate", "value": "x" * 5_000, "lines": [0]}] * 40
    found = {"valid": False, "anomalies": [*many, {"name": "G1c", "lines": [4]}], "statistics": {}}
    results = {"valid": False, "operations": 2, "faults": {"kill": 0}, "checkers": {"kafka": found}}
    folder.write_results(results)
    page = page_of(folder)
    assert "duplicate 40, G1c 1" in page
    assert "faults that struck: kill 0" in page
    assert page.count("<h3") == ANOMALIES_SHOWN_MAX + 1
    assert "<td>40</td>" in page
    assert "and 37 more in results.json" in page
    shown = re.sub(r"<details>.*?</details>", "", page)
    assert max(map(len, re.findall(r"x+", shown))) <= TEXT_SHOWN_MAX
    assert "show all" in page


def test_a_run_that_was_interrupted_says_so_and_why(folder: RunFolder) -> None:
    unknown = {"valid": "unknown", "anomalies": [], "statistics": {}}
    why = {"interrupted": unknown | {"why_unknown": "interrupted after 4 of 60 s"}}
    folder.write_results(
        {"valid": "unknown", "interrupted": True, "operations": 1, "checkers": why}
    )
    card = page_of(folder).partition("<table>")[0]
    assert "unknown (interrupted)" in card
    assert "interrupted after 4 of 60 s" in card


def test_a_run_without_a_verdict_hides_none() -> None:
    rows = [
        Row("/2", "queue", "2", NO_VERDICT, "queue", "kill"),
        Row("/1", "queue", "1", "valid", "queue", "kill"),
    ]
    matrix = index_page(rows).partition("<h2>All runs")[0]
    assert "valid" in matrix
    assert NO_VERDICT not in matrix


def test_faults_are_listed_with_their_times_and_targets() -> None:
    failed = Op(10, 11 * 10**9, "nemesis", OpType.INFO, "kill", "one", None, "no such node")
    lines = [*HISTORY, failed]
    rows = re.findall(r"<tr.*?</tr>", "".join(fault_table(lines, windows(lines))))
    texts = [re.sub(r"<[^>]*>", "|", row) for row in rows[1:]]
    assert texts[0] == "||3.0 s||4.0 s||kill: broker-1||"
    assert texts[1] == "||8.0 s||1.0 s||pause: broker-2||"
    assert texts[2] == "||11.0 s||||kill failed: no such node||"


def test_a_fault_that_hit_nobody_shades_nothing() -> None:
    nobody = [Op(0, 10**9, "nemesis", OpType.INFO, "kill", [])]
    assert windows(nobody) == []
    assert "kill: nobody" in "".join(fault_table(nobody, []))


def test_a_run_tells_when_it_was_and_how_long_it_lasted(folder: RunFolder) -> None:
    assert run(["report", str(folder.path)]) == 0
    page = (folder.path / "report.html").read_text()
    assert f"began {readable_time(folder.path.name)}" in page
    assert "lasted 9.0 s" in page
    for heading in ("Latency of each operation", "Operations per second", "Faults"):
        assert heading in page
    assert "All runs" not in page  # a file does not know where the others are


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("20261123T124512", "2026-11-23 12:45:12 UTC"),
        ("20261123T124512.2", "2026-11-23 12:45:12 UTC (2)"),
        ("mine", "mine"),
        ("20269923T124512", "20269923T124512"),
    ],
)
def test_times_of_runs_can_be_read(name: str, told: str) -> None:
    assert readable_time(name) == told


def test_a_run_in_which_nothing_ended_has_its_reason_and_no_charts(tmp_path: Path) -> None:
    empty = RunFolder.create(tmp_path, RunSpec("set", "sim"), "")
    assert run(["report", str(empty.path)]) == 0
    page = (empty.path / "report.html").read_text()
    assert "<svg" not in page
    assert "no operation of a client has ended" in page
    assert "never came to an end" in page


def test_statistics_are_told_in_words() -> None:
    statistics = {"sent": 3, "counts": {"poll": {"invoke": 2, "ok": 1}}, "longest_outage_s": {}}
    assert format_statistics(statistics) == "sent 3<br>counts of poll: invoke 2, ok 1"
    assert format_statistics({"longest_outage_s": {"<b>": 0.5}}) == (
        "longest outage (s): &lt;b&gt; 0.5"
    )


def test_of_many_kinds_a_few_are_open_and_the_others_can_be_opened(folder: RunFolder) -> None:
    kinds = [f"kind-{number}" for number in range(3 * KINDS_OPEN_MAX)]
    many = [{"name": kind, "lines": [0]} for kind in kinds for _ in range(2)]
    found = {"valid": False, "anomalies": many, "statistics": {}}
    folder.write_results({"valid": False, "operations": 2, "checkers": {"kafka": found}})
    page = page_of(folder)
    assert page.count("<h3") == len(many)
    opened = re.sub(r"<details>.*?</details>", "", page)
    assert opened.count("<h3") == KINDS_OPEN_MAX
    assert all(f">{kind}</a>" in opened for kind in kinds)
