"""The page of `raftctl top`: it fits every terminal, and says what it leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftctl.cli.top._page import KEYS, Settings, render, size
from raftctl.cli.top._view import GroupRow, TopicRow, View, make_view
from tests.unit.raftctl.cli.top.answers import answers

pytestmark = pytest.mark.req("O2")


def view() -> View:
    return make_view(answers(10.0, 5_000), answers(8.0, 1_000))


def page(shown: View, settings: Settings, width: int, height: int | None) -> list[str]:
    return [line.plain for line in render(shown, settings, width, height)]


def large() -> View:
    """More than any terminal shows, with long names."""
    topics = tuple(
        TopicRow(f"{'topic-' * 20}{number}", number, 0.0, 0.0, None) for number in range(500)
    )
    groups = tuple(GroupRow(f"group-{number}" * 9, number, 1, None) for number in range(500))
    brokers = tuple(replace(view().brokers[0], broker_id=number) for number in range(100))
    silent = ("broker 7 (" + "h" * 300 + ") is silent: timed out",)
    return replace(view(), traffic=topics, groups=groups, brokers=brokers, silent=silent)


@pytest.mark.parametrize("width", [10, 40, 80, 200])
@pytest.mark.parametrize("height", [2, 5, 10, 24, 50])
@pytest.mark.parametrize("settings", [Settings(), Settings(shows_help=True)])
@pytest.mark.parametrize("shown", [View(), view(), large()], ids=["nothing", "small", "large"])
def test_a_page_fits_the_terminal(shown: View, settings: Settings, width: int, height: int) -> None:
    lines = page(shown, settings, width, height)
    assert len(lines) <= height
    if width >= 40:
        assert max(map(len, lines), default=0) <= width


def test_all_of_a_small_cluster_is_on_a_page_of_80_by_24() -> None:
    lines = page(view(), Settings(), 80, 24)
    assert lines[0] == "leader 101  epoch 4  offset 90  in 4.0K/s  out 0/s"
    assert "offline 0  under-replicated 2" in lines[1]
    titles = [line for line in lines if line.isupper() or " by " in line]
    for title in ("QUORUM", "BROKERS", "PARTITIONS IN TROUBLE", "TOPICS by bytes in", "GROUPS by"):
        assert any(line.startswith(title) for line in lines), titles
    assert "   1  active        2         3  2.0K      0      4     7  4.1K      1.5  100" in lines
    assert "orders         10  under min.insync.replicas" in lines
    assert len(lines) == 24
    assert lines[-1].startswith("q quits")


def test_what_does_not_fit_is_counted() -> None:
    lines = page(large(), Settings(), 80, 30)
    (topics,) = [line for line in lines if line.startswith("TOPICS")]
    assert topics.endswith("of 500")
    assert any("topic-topic-" in line and line.rstrip()[-1] != "…" for line in lines)


def test_narrow_terminals_lose_the_columns_of_least_use() -> None:
    (wide,) = [line for line in page(view(), Settings(), 120, 40) if "LEADERS" in line]
    (narrow,) = [line for line in page(view(), Settings(), 40, 40) if "STATE" in line]
    assert "META-LAG" in wide
    assert "META-LAG" not in narrow
    assert "IN/s" in narrow


def test_keys_sort_pause_and_help() -> None:
    shown = replace(view(), traffic=(TopicRow("a", 1, 9, 5, None), TopicRow("b", 2, 8, 6, 7)))

    def first(settings: Settings) -> str:
        lines = page(shown, settings, 80, None)
        at = next(n for n, line in enumerate(lines) if line.startswith("TOPICS"))
        return lines[at + 2][0]

    settings = Settings()
    assert first(settings) == "b"
    assert [first(settings.pressed(key)) for key in "iomzn"] == ["b", "a", "b", "b", "a"]
    assert [first(settings.pressed(key).pressed("r")) for key in "in"] == ["a", "b"]
    assert settings.pressed("x") == settings
    assert "paused" in page(shown, settings.pressed("p"), 80, 24)[0]
    assert settings.pressed("p").pressed(" ") == settings
    helped = page(shown, settings.pressed("h"), 80, 24)
    assert all(any(what in line for line in helped) for _, what in KEYS)
    assert settings.pressed("?").pressed("h") == settings


def test_names_bring_no_control_characters() -> None:
    shown = replace(view(), groups=(GroupRow("\x1b[2J\nevil[red]", 1, 1, None),))
    lines = page(shown, Settings(), 80, None)
    assert not [line for line in lines if not line.isprintable()]
    assert any("·[2J·evil[red]" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (999, "999"), (1_234, "1.2K"), (25_000_000, "25M"), (3e15, "3000T")],
)
def test_sizes_are_short(value: float | None, text: str) -> None:
    assert size(value) == text
