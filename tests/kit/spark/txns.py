"""Random transactions on lists, with everything wrong that chance brings, judged on Spark and in
one process: the anomalies must be the same.

`python -m tests.kit.spark.txns --count 2000 --seed 1` prints how many of each kind were found, and
where the two differ.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jepsen.checkers.transactions.list_append import STRICTEST, check_list_append
from jepsen.checkers.verdict import verdict_document
from jepsen.history import Op, OpType
from tests.kit.spark.equality import quietly, show_differences, write_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Found = list[tuple[Any, ...]]
"""(name, the rest of it as JSON, lines), in order; of a cycle how long it is."""
CYCLES = ("G0", "G1c", "G-", "G2")


class _Lists:
    """Lists that do what they should most of the time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lists: dict[str, list[int]] = {key: [] for key in "xyz"[: rng.randint(1, 3)]}
        self._wrong = rng.choice((0.0, 0.02, 0.2))
        self._unread = rng.choice((0.0, 0.1, 0.6))
        self._nil = rng.choice((0.0, 0.5, 1.0))
        self._values = 0

    def asked(self) -> list[list[Any]]:
        """A transaction."""
        micros: list[list[Any]] = []
        for _ in range(self._rng.randint(0, 4)):
            key = self._rng.choice(list(self._lists))
            if self._rng.random() < 0.5:
                micros.append(["r", key, None])
            else:
                self._values += 1
                micros.append(["append", key, self._values])
        return micros

    def done(self, micro: list[Any], later: list[list[Any]]) -> list[Any]:
        """One of its parts, as it ends; those that come later may be seen already."""
        f, key, value = micro
        mine = self._lists[key]
        fails = self._rng.random() < self._wrong
        if f == "append":
            # Nobody reads what the rest is read without.
            if self._rng.random() >= self._unread:
                mine.append(value)
            if mine and fails and self._rng.random() < 0.3:
                mine.pop(self._rng.randrange(len(mine)))
            return micro
        seen = list(mine)
        if fails:
            seen = seen[: self._rng.randint(0, len(seen))]
        if fails and self._rng.random() < 0.3:
            self._rng.shuffle(seen)
        if fails and self._rng.random() < 0.3:
            seen += [value for other, at, value in later if (other, at) == ("append", key)][:1]
        # As long as what another reads, and in another order.
        if len(seen) > 1 and fails and self._rng.random() < 0.3:
            seen[-1], seen[-2] = seen[-2], seen[-1]
        is_nil = not seen and self._rng.random() < self._nil
        return [f, key, None if is_nil else seen]


def random_txns(rng: random.Random) -> list[Op]:
    """Transactions of up to six processes; in half of the histories they take effect in parts."""
    lists = _Lists(rng)
    torn = rng.random() < 0.5
    processes = rng.randint(1, 6)
    free = list(range(processes))
    open_now: dict[int, tuple[str, list[Any], list[Any], list[Any]]] = {}
    next_process = processes
    history: list[Op] = []

    def note(process: int, kind: str, value: Any) -> None:
        index = len(history)
        history.append(Op(index, index, process, OpType(kind), "txn", value))

    for _ in range(rng.randint(2, 150)):
        if free and (not open_now or rng.random() < 0.5):
            process = free.pop(rng.randrange(len(free)))
            asked = lists.asked()
            kind = rng.choice(("ok",) * 8 + ("info", "fail"))
            takes_effect = kind == "ok" or rng.random() < (0.5 if kind == "info" else 0.05)
            left = list(asked) if takes_effect else []
            note(process, "invoke", asked)
            open_now[process] = (kind, asked, left, [])
            continue
        process = rng.choice(list(open_now))
        kind, asked, left, done = open_now[process]
        while left:
            done.append(lists.done(left.pop(0), left))
            if torn:
                break
        if left:
            continue
        del open_now[process]
        # What is unknown may tell what it read, too.
        tells = kind == "ok" or (kind == "info" and len(done) == len(asked) and rng.random() < 0.3)
        note(process, kind, done if tells else asked)
        if kind == "info":
            process, next_process = next_process, next_process + 1
        free.append(process)
    return history if rng.random() < 0.7 else without_ends(history, rng)


def without_ends(history: list[Op], rng: random.Random) -> list[Op]:
    """The history without some of its completions: those of clients that crashed, which no process
    goes on after."""
    last = {op.process: op.index for op in history}
    gone = {
        at for at in last.values() if history[at].type is not OpType.INVOKE and rng.random() < 0.5
    }
    kept = [op for op in history if op.index not in gone]
    return [replace(op, index=at, time=at) for at, op in enumerate(kept)]


def _row(name: str, fields: dict[str, Any], lines: Sequence[int]) -> tuple[Any, ...]:
    """Of cycles of a kind which one is told is a matter of taste, not how long it is."""
    if name.startswith(CYCLES):
        return name, len(lines)
    return name, json.dumps(fields, sort_keys=True), list(lines)


def found_in_one_process(history: Sequence[Op], consistency: str) -> tuple[str, Found]:
    """(verdict, what `jepsen check` finds)."""
    document = verdict_document(check_list_append(history, consistency))
    found = []
    for fields in document["anomalies"]:
        name, lines = fields.pop("name"), fields.pop("lines")
        found.append(_row(name, fields, lines))
    return json.dumps(document["valid"]).strip('"'), sorted(found, key=str)


def found_on_spark(
    path: Path, folder: Path, *options: str
) -> tuple[dict[str, str], dict[str, Found]]:
    """By history (the verdict, what `jepsen spark check` finds)."""
    import pyarrow.parquet as pq

    words = ["--checker", "list-append", "--output", str(folder)]
    quietly(["spark", "check", str(path), *words, *options])
    found: dict[str, Found] = {}
    for row in pq.read_table(folder / "anomalies").to_pylist():
        if row["allowed"]:
            continue
        name = row["history"].removeprefix(f"{path}:")
        one = _row(row["name"], json.loads(row["detail"]), row["lines"])
        found.setdefault(name, []).append(one)
    verdicts = {
        row["history"].removeprefix(f"{path}:"): row["valid"]
        for row in pq.read_table(folder / "verdicts").to_pylist()
    }
    return verdicts, {name: sorted(mine, key=str) for name, mine in found.items()}


def compare(
    histories: Mapping[str, Sequence[Op]],
    folder: Path,
    *options: str,
    consistency: str = STRICTEST,
) -> tuple[list[str], Counter[str]]:
    """(what differs, how many anomalies of each kind) of the histories."""
    write_table(histories, folder / "txns.parquet")
    words = (*options, "--consistency", consistency)
    verdicts, found = found_on_spark(folder / "txns.parquet", folder / consistency, *words)
    differing, kinds = [], Counter[str]()
    for name, history in histories.items():
        word, wanted = found_in_one_process(history, consistency)
        kinds.update(kind for kind, *_ in wanted)
        if (verdicts[name], found.get(name, [])) != (word, wanted):
            differing.append(f"{name}: {word} {wanted}, not {verdicts[name]} {found.get(name)}")
    return differing, kinds


def many_txns(count: int, seed: int) -> dict[str, list[Op]]:
    """So many random histories by their seeds."""
    return {str(one): random_txns(random.Random(one)) for one in range(seed, seed + count)}


if __name__ == "__main__":
    show_differences("tests.kit.spark.txns", __doc__, many_txns, compare)
