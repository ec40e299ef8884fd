"""Watches of keys: what the checker finds, and how a watcher goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers import check_watch
from jepsen.environments import Change, KeyValueError
from jepsen.history import Op, OpType
from jepsen.workloads.kv import PREFIX, WatchClient
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from jepsen.environments import KeyValues

CHANGES = [[3, "a", 1], [4, "b", 2], [6, "a", None]]


def call(f: str, asked: Any, ended: Any, kind: str = "ok", process: int = 0) -> list[Any]:
    return [(process, "invoke", f, asked), (process, kind, f, ended)]


def events(begin: int, *changes: list[Any]) -> dict[str, Any]:
    return {"from": begin, "events": list(changes)}


def written(*changes: list[Any]) -> list[Any]:
    """One after the other, each acknowledged."""
    lines = []
    for version, key, value in changes:
        f = "delete" if value is None else "put"
        lines += call(f, [None, key, value], [version, key, value])
    return lines


def found(*lines: Any) -> list[str]:
    return [one.name for one in check_watch(history(*lines)).anomalies]


@pytest.mark.req("J3", "J4")
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (events(0, *CHANGES), []),
        (events(4, *CHANGES[1:]), []),
        (events(0, CHANGES[0]), []),  # not to the end, but nothing in between is missed
        (events(0, CHANGES[0], CHANGES[2]), ["missed"]),
        (events(3, *CHANGES[1:]), ["missed"]),
        (events(0, CHANGES[0], *CHANGES), ["repeated"]),
        (events(0, CHANGES[1], CHANGES[0], CHANGES[2]), ["out-of-order"]),
        (events(4, *CHANGES), ["repeated"]),
        (events(0, CHANGES[0], [4, "b", 7], CHANGES[2]), ["unexpected"]),
        (events(0, CHANGES[0], CHANGES[1], [5, "b", 9], CHANGES[2]), ["unexpected"]),
        ({"at": 5, "keys": CHANGES[:2]}, []),
        ({"at": 6, "keys": CHANGES[1:2]}, []),
        ({"at": 6, "keys": CHANGES[:2]}, ["wrong-list"]),
        ({"at": 5, "keys": CHANGES[:1]}, ["wrong-list"]),
        ({"at": 5, "keys": [*CHANGES[:2], [5, "c", 1]]}, ["unexpected", "wrong-list"]),
    ],
)
def test_a_watch_misses_nothing_and_repeats_nothing(
    seen: dict[str, Any], expected: list[str]
) -> None:
    end = call("drain", None, events(0, *CHANGES), process=2)
    assert found(*written(*CHANGES), *call("watch", 1.0, seen, process=1), *end) == expected


@pytest.mark.req("J4")
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (events(0, *CHANGES), []),
        # The newest key that was there is b: what was removed is in no list.
        (events(0, *CHANGES[:2]), []),
        (events(0, CHANGES[0]), ["missed"]),
        (events(0), ["missed", "missed"]),
        (events(4), ["missed"]),
        (events(5), []),
    ],
)
def test_a_drain_comes_to_the_newest_key_that_there_was_when_it_began(
    seen: dict[str, Any], expected: list[str]
) -> None:
    drain = call("drain", None, seen, process=1)
    assert found(*written(*CHANGES), *drain) == expected
    # Of what began later nothing is known.
    assert (
        found(
            *written(*CHANGES[:1]),
            *call("drain", None, events(0, CHANGES[0])),
            *written(CHANGES[1]),
        )
        == []
    )
    unknown = call("delete", [None, "b", None], None, "info", 3)
    assert found(*written(CHANGES[1]), *unknown, *call("drain", None, events(0))) == []


@pytest.mark.req("J4")
def test_what_one_watcher_saw_no_other_may_miss() -> None:
    lines = [
        *call("put", [None, "a", 1], None, "info", 3),
        *written([4, "b", 2]),
        *call("drain", None, events(0, [3, "a", 1], [4, "b", 2]), process=1),
        *call("watch", 1.0, events(0, [4, "b", 2]), process=2),
    ]
    assert found(*lines) == ["missed"]


@pytest.mark.req("J4")
def test_a_change_of_which_nobody_knows_is_made_at_most_once() -> None:
    unknown = call("put", [None, "a", 1], [None, "a", 1], "info", 3)
    once = call("drain", None, events(0, [3, "a", 1]), process=1)
    twice = call("drain", None, events(0, [3, "a", 1], [5, "a", 1]), process=2)
    assert found(*unknown, *once) == []
    assert found(*once, *unknown) == ["unexpected"]  # seen before anybody asked for it
    assert found(*unknown, *twice) == ["unexpected"]
    refused = call("put", [None, "a", 1], [None, "a", 1], "fail", 3)
    assert found(*refused, *once) == ["unexpected"]


@pytest.mark.req("J4")
def test_each_of_two_deletions_of_which_nobody_knows_explains_one() -> None:
    lines = [
        (1, "invoke", "delete", [None, "a", None]),
        (2, "invoke", "watch", 1.0),
        (3, "invoke", "watch", 1.0),
        (3, "ok", "watch", events(0, [5, "a", None])),
        (4, "invoke", "delete", [None, "a", None]),
        (2, "ok", "watch", events(6, [9, "a", None])),
        *call("drain", None, events(0, [5, "a", None], [9, "a", None]), process=5),
    ]
    assert found(*lines) == []
    assert found(*lines[:4], *lines[5:]) == ["unexpected"] * 2


@pytest.mark.req("J4")
def test_a_deletion_of_which_nobody_knows_explains_a_key_that_is_not_listed() -> None:
    gone = call("delete", [None, "a", None], None, "info", 3)
    empty = call("watch", "anew", {"at": 9, "keys": []}, process=1)
    drain = call("drain", None, events(0, [3, "a", 1]), process=2)
    assert found(*written([3, "a", 1]), *gone, *empty, *drain) == []
    assert found(*written([3, "a", 1]), *empty, *drain) == ["wrong-list"]


@pytest.mark.req("J4")
def test_versions_grow_and_without_an_end_nothing_is_known() -> None:
    assert found(*written([4, "a", 1], [3, "b", 2]))[0] == "version-went-back"
    verdict = check_watch(history(*written([3, "a", 1])))
    assert (verdict.valid, verdict.why_unknown) == ("unknown", "no drain has succeeded")


class Keys:
    """Keys and values of which a test says what becomes of them."""

    def __init__(self, changes: list[Change], log_start: int = 0) -> None:
        self._changes = changes
        self._log_start = log_start
        self.begun: list[int] = []

    async def listed(self, prefix: str) -> tuple[int, list[Change]]:
        return self._changes[-1].version, self._changes[-1:]

    async def changes(self, prefix: str, start: int) -> AsyncGenerator[Change]:
        self.begun.append(start)
        if start < self._log_start:
            raise KeyValueError("OFFSET_OUT_OF_RANGE", certain=True)
        for change in self._changes:
            if change.version >= start:
                yield change
        raise TimeoutError  # as when the time of the watch is over


def watcher(keys: Keys, process: int) -> WatchClient:
    connection: KeyValues | Any = keys
    return WatchClient(connection, process)


def op(f: str, value: Any = None) -> Op:
    return Op(0, 0, 1, OpType.INVOKE, f, value)


CHANGED = [Change(4, f"{PREFIX}a", b"1"), Change(6, f"{PREFIX}a", None)]


@pytest.mark.req("J3")
async def test_a_watch_is_taken_up_after_the_last_event() -> None:
    keys = Keys(CHANGED)
    client = watcher(keys, 2)
    first = await client.invoke(op("watch", 1.0))
    assert first.value == events(0, [4, "a", 1], [6, "a", None])
    assert (await client.invoke(op("watch", 1.0))).value == events(7)
    assert (await client.invoke(op("drain"))).value == events(7)
    assert keys.begun == [0, 7]


@pytest.mark.req("J3")
async def test_where_the_log_does_not_reach_back_so_far_the_keys_are_listed() -> None:
    client = watcher(Keys(CHANGED[:1], log_start=4), 2)
    refused = await client.invoke(op("watch", 1.0))
    assert (refused.type, refused.error) == (OpType.FAIL, "OFFSET_OUT_OF_RANGE")
    listed = await client.invoke(op("watch", 1.0))
    assert listed.value == {"at": 4, "keys": [[4, "a", 1]]}
    assert (await client.invoke(op("watch", 1.0))).value == events(5)
