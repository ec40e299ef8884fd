"""Levels of loggers (row O3): which lines are written, and how a level is found."""

from __future__ import annotations

import io
import json
from functools import partial
from typing import Any

import pytest

from raftctl.errors import ErrorCode, KafkaError
from raftctl.loggers import LOGGERS, ROOT, Level, LogLevels, read_level
from raftctl.runtime.real import make_log

REPLICATION = "broker.replication"
FETCHER = "broker.replication.fetcher"


class Logged:
    """A log at INFO, and the events in it."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.root = make_log(self._stream, "info", node_id=1)
        self.levels = LogLevels.of(self.root)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]


def refusal_of(levels: LogLevels, name: str, level: Level | None) -> KafkaError:
    change = partial(levels.unset, name) if level is None else partial(levels.set, name, level)
    with pytest.raises(KafkaError) as refused:
        change()
    return refused.value


@pytest.mark.req("O3")
def test_a_level_is_in_force_for_loggers_that_were_bound_before() -> None:
    logged = Logged()
    log = logged.root.bind(logger=REPLICATION).bind(partition="t-0")
    log.debug("hidden")
    logged.levels.set(REPLICATION, Level.DEBUG)
    log.debug("shown")
    logged.root.debug("hidden")
    logged.levels.set(REPLICATION, Level.ERROR)
    log.warning("hidden")
    log.error("shown_too")
    assert logged.events() == ["shown", "shown_too"]
    shown = logged.lines()[0]
    assert (shown["logger"], shown["partition"], shown["node_id"]) == (REPLICATION, "t-0", 1)


@pytest.mark.req("O3")
def test_a_logger_follows_the_nearest_one_above_it_that_has_a_level() -> None:
    levels = Logged().levels
    assert {levels.level(name) for name in LOGGERS} == {Level.INFO}
    levels.set("broker", Level.WARN)
    levels.set(REPLICATION, Level.DEBUG)
    found = levels.all()
    assert found[FETCHER] is Level.DEBUG
    assert found["broker.log"] is Level.WARN
    assert found["raftctl.quorum"] is found[ROOT] is Level.INFO
    assert list(found) == sorted(LOGGERS)


@pytest.mark.req("O3")
def test_a_logger_without_its_level_follows_its_parent_again() -> None:
    logged = Logged()
    log = logged.root.bind(logger=FETCHER)
    logged.levels.set(FETCHER, Level.DEBUG)
    logged.levels.set("broker", Level.ERROR)
    logged.levels.unset(FETCHER)
    log.warning("hidden")
    logged.levels.unset("broker")
    log.info("shown")
    logged.levels.unset("broker")
    log.debug("hidden")
    assert logged.events() == ["shown"]


@pytest.mark.req("O3")
def test_a_change_of_root_reaches_what_has_no_logger() -> None:
    logged = Logged()
    logged.levels.set(ROOT, Level.TRACE)
    logged.root.debug("shown")
    logged.root.bind(logger=FETCHER).debug("shown_too")
    logged.levels.set(ROOT, Level.FATAL)
    logged.root.error("hidden")
    assert logged.events() == ["shown", "shown_too"]


def test_what_cannot_be_is_refused_by_name() -> None:
    levels = Logged().levels
    unknown = refusal_of(levels, "broker.replicatoin", Level.INFO)
    assert unknown.code is ErrorCode.INVALID_CONFIG
    assert "broker.replicatoin does not exist" in unknown.message
    assert refusal_of(levels, "nobody", None).code is ErrorCode.INVALID_CONFIG
    assert refusal_of(levels, ROOT, None).code is ErrorCode.INVALID_REQUEST
    assert len(refusal_of(levels, "x" * 100_000, None).message) < 200


def test_levels_are_read_as_apache_kafka_writes_them() -> None:
    names = ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"]
    read = [read_level(name) for name in names]
    assert read == sorted(Level, reverse=True)
    assert [one.name for one in read] == names
    for text in ("info", "OFF", "", "WARNING"):
        with pytest.raises(ValueError, match=f"^{text}$"):
            read_level(text)


def test_loggers_of_a_plug_in_are_there_once_they_are_bound() -> None:
    logged = Logged()
    log = logged.root.bind(logger="plugin.part")
    logged.levels.set("plugin.part", Level.DEBUG)
    log.debug("shown")
    assert logged.events() == ["shown"]
    assert logged.levels.all()["plugin.part"] is Level.DEBUG


def test_nodes_of_one_process_share_no_levels() -> None:
    one, other = Logged(), Logged()
    one.levels.set(ROOT, Level.DEBUG)
    other.root.debug("hidden")
    one.root.debug("shown")
    assert (one.events(), other.events()) == (["shown"], [])


def test_what_is_not_written_is_not_formatted() -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise AssertionError("formatted")

    Logged().root.bind(logger=FETCHER).debug("hidden", value=Unprintable())
