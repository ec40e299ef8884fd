"""Random histories of logs, with everything wrong that chance brings, judged on Spark and in one
process: the anomalies must be the same.

`python -m tests.kit.spark.logs --count 2000 --seed 1` prints how many of each kind were found, and
where the two differ.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from jepsen.checkers.kafka import check_kafka
from jepsen.checkers.verdict import plain, verdict_document
from jepsen.history import Op, OpType
from tests.kit.spark.equality import quietly, show_differences, write_table
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Found = list[tuple[str, str, bool]]
"""(name, the rest of it as JSON, whether it is allowed), in order."""


def at_once(*micros: list[list[Any]]) -> list[Op]:
    """Transactions that all begin before any ends."""
    begun = [(process, "invoke", "txn", mine) for process, mine in enumerate(micros)]
    return history(*begun, *((process, "ok", "txn", mine) for process, _, _, mine in begun))


def _both(process: int, kind: str, f: str, asked: Any, done: Any) -> list[tuple[Any, ...]]:
    """The lines of an operation."""
    return [(process, "invoke", f, [asked]), (process, kind, f, [done])]


def _polled(process: int, value: Any) -> list[tuple[Any, ...]]:
    return _both(process, "ok", "poll", ["poll"], ["poll", {"x": [[0, value]]}])


def _sent(process: int, kind: str, value: Any) -> list[tuple[Any, ...]]:
    return _both(process, kind, "send", ["send", "x", value], ["send", "x", [0, value]])


_SET = frozenset("z")
CYCLES = {
    # Of what one polls of the other the first is told.
    "both": at_once(
        [*(["send", key, [0, 1]] for key in ("x", "y", _SET)), ["poll", {"a": [[0, 1]]}]],
        [["send", "a", [0, 1]], ["poll", {_SET: [[0, 1]], "y": [[0, 1]], "x": [[0, 1]]}]],
    ),
    "texts": at_once(
        [["send", "x", [0, 1]], ["send", "y", [0, 1]], ["poll", {"a": [[0, _SET], [1, "2"]]}]],
        [["send", "a", [0, _SET]], ["send", "a", [1, "2"]], ["poll", {"y": [[0, 1]]}]],
        [["poll", {"x": [[0, 1]], "y": [[0, 1]]}], ["poll", {"x": [[0, 1]]}]],
    ),
    # Nobody both sends and polls: a poll returns what is sent only after that.
    "early": history(*_polled(0, 1), *_sent(1, "ok", 1)),
    # What may have taken effect lies between the two, though another has sent the same first.
    "again": history(
        *_sent(1, "ok", 5), *_polled(1, 5), *_polled(2, 9), *_sent(2, "info", 5), *_sent(2, "ok", 9)
    ),
}
"""Histories that each have a cycle."""


class _Logs:
    """Logs that do what they should most of the time, and their clients."""

    def __init__(self, rng: random.Random, wrong: float) -> None:
        self.rng = rng
        self.wrong = wrong
        self.logs: dict[str, list[Any]] = {key: [] for key in ("x", "y", "z")[: rng.randint(1, 3)]}
        self.positions: dict[tuple[int, str], int] = {}
        self.values = 0
        self.kept: dict[str, int] = {}

    def _fails(self) -> bool:
        return self.rng.random() < self.wrong

    def send(self, key: str, *, takes_effect: bool) -> tuple[list[Any], list[Any]]:
        """(what is asked, what it becomes)."""
        self.values += 1
        value = self.values if not self._fails() else self.rng.randint(1, self.values)
        log = self.logs[key]
        offset = len(log)
        if takes_effect:
            log.append(value)
            if self._fails():
                log[-1] = None  # lost
            if self._fails():
                log.append(value)  # twice
        if self._fails():
            offset = self.rng.randint(0, len(log))
        placed = None if self._fails() else offset
        return ["send", key, value], ["send", key, [placed, value]]

    def offsets(self, keys: list[str]) -> dict[str, int]:
        """What a group commits of some logs."""
        chosen = self.rng.sample(keys, self.rng.randint(0, len(keys)))
        some = {key: self.kept.get(key, -1) + self.rng.randint(0, 3) for key in chosen}
        self.kept |= some
        return some

    def committed(self, keys: list[str]) -> dict[str, int | None]:
        """What a group has committed."""
        found: dict[str, int | None] = {key: self.kept.get(key) for key in keys}
        if self.rng.random() < 3 * self.wrong:
            found |= {key: offset - self.rng.randint(0, 2) for key, offset in self.kept.items()}
        return found

    def poll(self, process: int) -> list[Any]:
        """What a poll returns."""
        found = {}
        for key, log in self.logs.items():
            at = self.positions.get((process, key), 0)
            if self._fails():
                at = self.rng.randint(0, len(log))
            records = [[at + n, value] for n, value in enumerate(log[at : at + 4]) if value]
            if self._fails():
                self.rng.shuffle(records)
            if records and self._fails():
                records[-1][1] = self.rng.randint(1, self.values + 3)
            self.positions[process, key] = min(at + 4, len(log))
            if records:
                found[key] = records
        return ["poll", found]


def random_log(rng: random.Random) -> list[Op]:
    """A history of up to forty operations of up to four processes."""
    logs = _Logs(rng, rng.choice((0.0, 0.02, 0.15)))
    lines: list[Op] = []
    pending: list[tuple[int, str, Any, Any, OpType]] = []
    process_of = list(range(rng.randint(1, 4)))
    left = rng.randint(1, 40)
    subscribes = rng.random() < 0.3
    # Who polls at the end may read what others sent who read what it has sent.
    late = rng.random() < 0.3

    def note(process: int, kind: OpType, f: str, value: Any) -> None:
        lines.append(Op(len(lines), len(lines), process, kind, f, value))

    while left or pending:
        if left and (not pending or rng.random() < 0.6) and process_of:
            process = process_of.pop(rng.randrange(len(process_of)))
            f, asked, done, kind = _call(
                rng, logs, process, subscribes=subscribes, txns=5 if late else 1
            )
            note(process, OpType.INVOKE, f, asked)
            pending.append((process, f, asked, done, kind))
            left -= 1
            continue
        process, f, asked, done, kind = pending.pop(rng.randrange(len(pending)))
        if kind is OpType.INFO and rng.random() < 0.3:
            process_of.append(process + 10)
            continue
        if late and f == "txn":
            done = [logs.poll(process) if one[0] == "poll" else one for one in done]
        shown = done if kind is OpType.OK or rng.random() < 0.3 else asked
        note(process, kind, f, shown)
        process_of.append(process + 10 if kind is OpType.INFO else process)
    return lines


def _call(
    rng: random.Random, logs: _Logs, process: int, *, subscribes: bool, txns: int
) -> tuple[str, Any, Any, OpType]:
    kind = rng.choices((OpType.OK, OpType.FAIL, OpType.INFO), (8, 1, 1))[0]
    effect = kind is OpType.OK or (kind is OpType.INFO and rng.random() < 0.5) or logs.wrong > 0.1
    keys = list(logs.logs)
    choice = rng.random()
    if choice < 0.08:
        offsets = logs.offsets(keys)
        return "commit", offsets, offsets, kind
    if choice < 0.16:
        return "committed", None, logs.committed(keys), kind
    choice = rng.random()
    if choice < 0.1:
        kept = rng.sample(keys, rng.randint(0, len(keys)))
        return "subscribe" if subscribes else "assign", kept, kept, kind
    if choice < 0.15:
        return "final-poll", [["poll"]], [logs.poll(process)], kind
    f = rng.choice(("send", "poll", *["txn"] * txns))
    count = 1 if f != "txn" else rng.randint(1, 3)
    asked, done = [], []
    for _ in range(count):
        if f == "poll" or (f == "txn" and rng.random() < 0.4):
            asked.append(["poll"])
            done.append(logs.poll(process))
        else:
            one, other = logs.send(rng.choice(keys), takes_effect=effect)
            asked.append(one)
            done.append(other)
    return f, asked, done, kind


def found_in_one_process(history: Sequence[Op]) -> tuple[Found, str]:
    """(anomalies and notes, the reason to be unknown if there are none)."""
    document = verdict_document(check_kafka(history))
    found = [
        (one.pop("name"), _detail(one), allowed)
        for allowed, kind in ((False, "anomalies"), (True, "notes"))
        for one in json.loads(json.dumps(document[kind], default=plain))
    ]
    return sorted(found), str(document.get("why_unknown", ""))


def _detail(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)


def found_on_spark(path: Path, folder: Path, *options: str) -> tuple[dict[str, Found], set[Any]]:
    """(by history what `jepsen spark check` finds, (history, verdict) of all)."""
    import pyarrow.parquet as pq

    quietly(
        ["spark", "check", str(path), "--checker", "kafka-log", "--output", str(folder), *options]
    )
    found: dict[str, Found] = {}
    for row in pq.read_table(folder / "anomalies").to_pylist():
        fields = {**json.loads(row["detail"]), "lines": row["lines"]}
        name = row["history"].removeprefix(f"{path}:")
        found.setdefault(name, []).append((row["name"], _detail(fields), row["allowed"]))
    verdicts = {
        (row["history"].removeprefix(f"{path}:"), row["valid"])
        for row in pq.read_table(folder / "verdicts").to_pylist()
    }
    return {name: sorted(mine) for name, mine in found.items()}, verdicts


def compare(
    histories: Mapping[str, Sequence[Op]], folder: Path, *options: str
) -> tuple[list[str], Counter[str]]:
    """(what differs, how many anomalies of each kind) of the histories."""
    write_table(histories, folder / "logs.parquet")
    found, verdicts = found_on_spark(folder / "logs.parquet", folder / "found", *options)
    differing, kinds = [], Counter[str]()
    for name, lines in histories.items():
        wanted, unknown = found_in_one_process(lines)
        kinds.update(kind for kind, *_ in wanted)
        mine = found.get(name, [])
        if mine != wanted:
            missing = [one for one in wanted if one not in mine]
            invented = [one for one in mine if one not in wanted]
            differing.append(f"{name}: missing {missing}, invented {invented}")
        wrong = any(not allowed for *_, allowed in wanted)
        word = "false" if wrong else "unknown" if unknown else "true"
        if (name, word) not in verdicts or (word != "false" and (name, "false") in verdicts):
            differing.append(f"{name}: not {word}")
    return differing, kinds


def random_logs(count: int, seed: int) -> dict[str, list[Op]]:
    """So many random histories by their seeds."""
    return {str(number): random_log(random.Random(number)) for number in range(seed, seed + count)}


if __name__ == "__main__":
    show_differences("tests.kit.spark.logs", __doc__, random_logs, compare)
