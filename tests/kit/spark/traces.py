"""Random traces of servers, with what chance makes wrong of them, judged on Spark and in one
process: the anomalies must be the same.

`python -m tests.kit.spark.traces --count 2000 --seed 1` tells how many of each kind were found, and
where the two differ.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jepsen.checkers.replication.trace import (
    ASSIGNMENT,
    LEADER,
    METADATA_LOG,
    RECORD,
    REPLICA,
    check_trace,
)
from jepsen.checkers.verdict import verdict_document
from jepsen.history import Op, OpType
from jepsen.history.formats import to_json
from tests.kit.spark.equality import quietly, show_differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NODES = (1, 2, 3)
Found = list[tuple[str, str]]
"""(name, the rest of it as JSON), in order."""


class _Replica:
    """What a node has of a partition."""

    def __init__(self) -> None:
        self.life = self.epoch = self.high_watermark = self.log_end = 0


class _Cluster:
    """Servers that do what they should, or tell of it wrongly with some likelihood."""

    def __init__(self, rng: random.Random, wrong: float) -> None:
        self.rng = rng
        self.wrong = wrong
        self.partitions = [METADATA_LOG, 'odd "name"]-0', "ünïcode-1"][: rng.randint(1, 3)]
        self.replicas = {(node, p): _Replica() for node in NODES for p in self.partitions}
        self.leaders = dict.fromkeys(self.partitions, 1)
        self.changes = dict.fromkeys(self.partitions, 0)
        self.lines: list[Op] = []

    def _number(self, value: int) -> int:
        return value if self.rng.random() >= self.wrong else max(0, value + self.rng.randint(-2, 2))

    def note(self, process: int | str, f: str, value: Any, key: str | None = None) -> None:
        """A line of the trace."""
        index = len(self.lines)
        self.lines.append(Op(index, index * 1000, process, OpType.INFO, f, value, key))

    def elect(self, partition: str) -> None:
        """Somebody leads in a new epoch, and everybody hears of it."""
        leader = self.leaders[partition] = self.rng.choice(NODES)
        epoch = 1 + max(self.replicas[node, partition].epoch for node in NODES)
        self.changes[partition] += 1
        isr = [leader, *(node for node in NODES if node != leader and self.rng.random() < 0.7)]
        for node in self.rng.sample(NODES, len(NODES)):
            one = self.replicas[node, partition]
            one.epoch = epoch
            value = {
                "leader": leader
                if self.rng.random() >= self.wrong
                else self.rng.choice((-1, 1, 3)),
                "leader_epoch": self._number(epoch),
                "partition_epoch": self._number(self.changes[partition]),
                "isr": isr,
                "life": one.life,
            }
            self.note(f"n{node}", ASSIGNMENT, value, partition)
            self.tell(node, partition)
        if partition == METADATA_LOG:
            self.note("observer", LEADER, [f"n{leader}", self._number(epoch)])

    def append(self, partition: str) -> None:
        """Records come to some replicas, and may be committed there."""
        for node in NODES:
            one = self.replicas[node, partition]
            begin = one.high_watermark
            one.log_end += self.rng.randint(0, 3)
            one.high_watermark = self.rng.randint(begin, one.log_end)
            for offset in range(begin, one.high_watermark):
                content = f"record {self._number(offset)}"
                value = {"offset": offset, "record": content, "life": one.life}
                self.note(f"n{node}", RECORD, value, partition)
            self.tell(node, partition)

    def tell(self, node: int, partition: str) -> None:
        """A node says how things stand with a partition."""
        one = self.replicas[node, partition]
        value: dict[str, Any] = {
            "leads": (self.leaders[partition] == node) ^ (self.rng.random() < self.wrong / 3),
            "epoch": self._number(one.epoch),
            "high_watermark": self._number(one.high_watermark),
            "log_end": one.log_end,
        }
        self.note(f"n{node}", REPLICA, value | ({"life": one.life} if one.life else {}), partition)

    def restart(self, node: int) -> None:
        """A node forgets how far it was."""
        for partition in self.partitions:
            one = self.replicas[node, partition]
            one.life += 1
            one.high_watermark = self.rng.randint(0, one.high_watermark)
            self.tell(node, partition)


def random_trace(rng: random.Random, wrong: float | None = None) -> list[Op]:
    """A trace of some steps, among lines of clients and of the nemesis."""
    cluster = _Cluster(rng, rng.choice((0.0, 0.02, 0.15)) if wrong is None else wrong)
    for _ in range(rng.randint(0, 12)):
        partition = rng.choice(cluster.partitions)
        step = rng.random()
        if step < 0.35:
            cluster.elect(partition)
        elif step < 0.8:
            cluster.append(partition)
        elif step < 0.9:
            cluster.restart(rng.choice(NODES))
        else:
            cluster.note("nemesis", "kill", ["n1", 7])
            cluster.note(rng.randint(0, 9), RECORD, {"offset": None}, "a client's")
    return cluster.lines


def found_in_one_process(history: Sequence[Op]) -> tuple[bool | str, Found]:
    """(verdict, what `jepsen check` finds)."""
    document = verdict_document(check_trace(history))
    return document["valid"], _sorted(document["anomalies"])


def _sorted(anomalies: Sequence[dict[str, Any]]) -> Found:
    rows = [(one["name"], {**one, "name": ""}) for one in json.loads(json.dumps(anomalies))]
    return sorted((name, json.dumps(detail, sort_keys=True)) for name, detail in rows)


def found_on_spark(
    paths: Sequence[Path], folder: Path, *options: str
) -> tuple[dict[str, bool | str], dict[str, Found]]:
    """By the history's name (verdict, what `jepsen spark check` finds)."""
    import pyarrow.parquet as pq

    asked = ["spark", "check", *map(str, paths), "--checker", "trace", "--print", "json"]
    said = quietly([*asked, "--output", str(folder), *options])
    verdicts = {one["file"].rpartition("/")[2]: one["valid"] for one in json.loads(said)}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(folder / "anomalies").to_pylist():
        one = {"name": row["name"], **json.loads(row["detail"]), "lines": row["lines"]}
        found.setdefault(row["history"].rpartition("/")[2], []).append(one)
    return verdicts, {name: _sorted(mine) for name, mine in found.items()}


def compare(
    histories: Mapping[str, Sequence[Op]], folder: Path, *options: str
) -> tuple[list[str], Counter[str]]:
    """(what differs, how many anomalies of each kind) of the histories."""
    for name, history in histories.items():
        (folder / name).write_text("".join(to_json(op) + "\n" for op in history))
    paths = [folder / name for name, history in histories.items() if history]
    verdicts, found = found_on_spark(paths, folder / "found", *options)
    differing, kinds = [], Counter[str]()
    for name in (path.name for path in paths):
        valid, wanted = found_in_one_process(histories[name])
        kinds.update(kind for kind, _ in wanted)
        if (verdicts[name], found.get(name, [])) != (valid, wanted):
            differing.append(f"{name}: {valid} {wanted}, not {verdicts[name]} {found.get(name)}")
    return differing, kinds


def random_traces(count: int, seed: int) -> dict[str, list[Op]]:
    """So many random traces by their seeds."""
    return {str(one): random_trace(random.Random(one)) for one in range(seed, seed + count)}


def in_parts(traces: Mapping[str, Sequence[Op]], count: int) -> dict[str, list[Op]]:
    """The traces in so many: whose partitions and nodes are others have nothing in common."""
    parts: dict[str, list[Op]] = {str(number): [] for number in range(count)}
    for number, (name, history) in enumerate(traces.items()):
        part = parts[str(number % count)]
        for op in history:
            if op.f == LEADER:
                # It names no partition, so that its epochs have to be others.
                seen, epoch = op.value
                value: Any = [f"{seen} of {name}", epoch + 1000 * number]
                part.append(replace(op, index=len(part), value=value))
            else:
                key = None if op.key is None else f"{name} {op.key}"
                part.append(replace(op, index=len(part), key=key))
    return parts


def many_traces(count: int, seed: int) -> dict[str, list[Op]]:
    """So many random traces, fifty in a history."""
    return in_parts(random_traces(count, seed), -(-count // 50))


if __name__ == "__main__":
    show_differences("tests.kit.spark.traces", __doc__, many_traces, compare)
