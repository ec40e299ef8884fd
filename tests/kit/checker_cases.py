"""Each anomaly of each checker: a history that has it, and one that nearly has.

`docs/reference/checkers.md` prints them with their sources; `test_checker_cases.py` judges them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

Line = tuple[Any, ...]
"""(process, type, function, value[, key])"""


@dataclass(frozen=True, slots=True)
class Case:
    """An anomaly, and what is none."""

    checker: str
    """As `--checker` names it; of linearizability with the model in brackets."""
    anomaly: str
    source: str
    has: str
    """What the history has, in words."""
    lines: tuple[Line, ...]
    near: tuple[Line, ...]
    """It is nearly so, but may be."""

    @property
    def model(self) -> str:
        """Empty unless it is linearizability."""
        return self.checker.partition("(")[2].rstrip(")")


def ok(process: int, f: str, value: Any, result: Any = None, key: Any = None) -> list[Line]:
    """An operation that has succeeded before another begins."""
    return ended(process, "ok", f, value, value if result is None else result, key)


def info(process: int, f: str, value: Any, key: Any = None) -> list[Line]:
    """One of which nobody knows what came of it."""
    return ended(process, "info", f, value, value, key)


def failed(process: int, f: str, value: Any, key: Any = None) -> list[Line]:
    """One that had no effect."""
    return ended(process, "fail", f, value, value, key)


def ended(process: int, kind: str, f: str, value: Any, result: Any, key: Any) -> list[Line]:
    """Both lines of it."""
    of_key = () if key is None else (key,)
    return [(process, "invoke", f, value, *of_key), (process, kind, f, result, *of_key)]


def lines(*parts: list[Line]) -> tuple[Line, ...]:
    """One after the other."""
    return tuple(chain.from_iterable(parts))


def within(outer: list[Line], *inner: list[Line]) -> list[Line]:
    """The inner ones while the outer one is under way."""
    return [outer[0], *chain.from_iterable(inner), outer[1]]


def read(result: Any, process: int = 1) -> list[Line]:
    """A read that has succeeded."""
    return [(process, "invoke", "read", None), (process, "ok", "read", result)]


def sent(key: str, offset: int, value: int, process: int = 0, kind: str = "ok") -> list[Line]:
    """A send of one record."""
    told = [["send", key, [offset, value]]] if kind == "ok" else [["send", key, value]]
    return ended(process, kind, "send", [["send", key, value]], told, None)


def polled(*records: list[int], process: int = 1) -> list[Line]:
    """A poll of records (offset, value) of x."""
    return ended(process, "ok", "poll", [["poll"]], [["poll", {"x": list(records)}]], None)


def acted(process: int, told: list[Any]) -> list[Line]:
    """A transaction of sends and polls of logs, as it ended."""
    asked = [
        [f, key, value[1]] if f == "send" else [f]
        for f, key, *rest in told
        for value in (rest or [None])
    ]
    return ended(process, "ok", "txn", asked, told, None)


def watched(kind: str, begin: int, *changes: list[Any], process: int = 5) -> list[Line]:
    """A watch or drain that saw the changes."""
    seen = {"from": begin, "events": list(changes)}
    return ended(process, "ok", kind, None, seen, None)


def put(version: int, key: str, value: int | None, process: int = 0) -> list[Line]:
    """A change that is acknowledged."""
    change = [None, key, value]
    return ok(process, "delete" if value is None else "put", change, [version, key, value])


def member(name: str, generation: int, *keys: str, process: int = 0) -> list[Line]:
    """A poll of a member of a group."""
    told = [["poll", {}], ["member", name, generation, list(keys)]]
    return ended(process, "ok", "poll", [["poll"]], told, None)


def rule(
    change: str,
    name: str = "t",
    pattern: str = "LITERAL",
    permission: str = "ALLOW",
    principal: str = "User:a",
) -> list[Line]:
    """An acknowledged change of a rule for WRITE on topics."""
    value = [permission, principal, "WRITE", "TOPIC", pattern, name]
    return ok(0, change, value)


def used(decision: str, broker: int = 1, process: int = 5) -> list[Line]:
    """A use of the right to write to the topic `t`."""
    asked = [broker, "User:a", "WRITE", "TOPIC", "t"]
    return ok(process, "use", asked, [*asked, decision])


def reached(*brokers: int) -> list[Line]:
    """These brokers have all that was acknowledged before."""
    return ok(6, "reached", None, list(brokers))


KNOSSOS = "Knossos, knossos.model"
RULE = ("ALLOW", "User:a", "WRITE", "TOPIC", "LITERAL", "t")
ACL = "KIP-11, KIP-290; linearizability"
SET = "Jepsen, checker/set-full"
QUEUE = "Jepsen, checker/total-queue"
BANK = "Jepsen, tests.bank"
KAFKA = "Jepsen, tests.kafka"
LOCKS = "Kleppmann, How to do distributed locking: fencing tokens"
WATCH = "etcd, API guarantees: watch is ordered, unique, reliable, resumable"

LINEARIZABLE = [
    ("register", "an old value is read after the write of another",
     lines(ok(0, "write", 1), ok(0, "write", 2), read(1)),
     lines(ok(0, "write", 1), within(ok(0, "write", 2), read(1)))),
    ("cas-register", "a cas of what is not there has succeeded",
     lines(ok(0, "write", 1), ok(1, "cas", [2, 3])),
     lines(ok(0, "write", 1), info(2, "write", 2), ok(1, "cas", [2, 3]))),
    ("multi-register", "half of a transaction is read",
     lines(ok(0, "txn", [["write", "x", 1], ["write", "y", 1]]),
           ok(1, "txn", [["read", "x", 1], ["read", "y", None]])),
     lines(ok(0, "txn", [["write", "x", 1]]),
           ok(1, "txn", [["read", "x", 1], ["read", "y", None]]))),
    ("mutex", "two hold it", lines(ok(0, "acquire", None), ok(1, "acquire", None)),
     lines(ok(0, "acquire", None), info(2, "release", None), ok(1, "acquire", None))),
    ("fifo-queue", "the second comes out first",
     lines(ok(0, "enqueue", 1), ok(0, "enqueue", 2), ok(1, "dequeue", None, 2)),
     lines(within(ok(0, "enqueue", 1), ok(2, "enqueue", 2)), ok(1, "dequeue", None, 2))),
    ("unordered-queue", "one value comes out twice",
     lines(ok(0, "enqueue", 1), ok(1, "dequeue", None, 1), ok(1, "dequeue", None, 1)),
     lines(ok(0, "enqueue", 1), info(2, "enqueue", 1), ok(1, "dequeue", None, 1),
           ok(1, "dequeue", None, 1))),
    ("set", "an element is missing", lines(ok(0, "add", 1), ok(0, "add", 2), read([2])),
     lines(within(ok(0, "add", 1), ok(2, "add", 2), read([2])))),
    ("kv", "an append is lost",
     lines(ok(0, "append", "a"), ok(0, "append", "b"), ok(1, "get", None, "b")),
     lines(info(0, "append", "a"), ok(1, "append", "b"), ok(1, "get", None, "b"))),
]  # fmt: skip

CASES = (
    *(Case(f"linearizable({model})", "nonlinearizable", KNOSSOS, has, bad, near)
      for model, has, bad, near in LINEARIZABLE),
    Case("set", "lost", SET, "acknowledged, and gone in the end",
         lines(ok(0, "add", 1), ok(0, "add", 2), read([1, 2]), read([2])),
         lines(ok(0, "add", 1), ok(0, "add", 2), read([1, 2]), failed(0, "add", 3), read([1, 2]))),
    Case("set", "lost", SET, "acknowledged, then its second add failed, and gone in the end",
         lines(ok(0, "add", 1), ok(0, "add", 2), failed(0, "add", 1), read([2])),
         lines(failed(0, "add", 1), ok(0, "add", 2), failed(0, "add", 1), read([2]))),
    Case("set", "stale", SET, "acknowledged, absent for a time",
         lines(ok(0, "add", 1), read([]), read([1])),
         lines(within(ok(0, "add", 1), read([])), read([1]))),
    Case("set", "unexpected", SET, "what has failed is read",
         lines(ok(0, "add", 2), failed(0, "add", 1), read([1, 2])),
         lines(ok(0, "add", 2), info(0, "add", 1), read([1, 2]))),
    Case("set", "duplicate", SET, "twice in one read", lines(ok(0, "add", 1), read([1, 1])),
         lines(ok(0, "add", 1), read([1]), read([1]))),
    Case("counter", "out-of-bounds", "Jepsen, checker/counter", "less than what was acknowledged",
         lines(ok(0, "add", 2), info(0, "add", 3), read(1)),
         lines(ok(0, "add", 2), info(2, "add", 3), read(5), read(2))),
    Case("queue", "lost", QUEUE, "put in twice, out once",
         lines(ok(0, "enqueue", 1), ok(0, "enqueue", 1), ok(1, "drain", None, [1])),
         lines(ok(0, "enqueue", 1), info(0, "enqueue", 1), ok(1, "drain", None, [1]))),
    Case("queue", "duplicate", QUEUE, "put in once, out twice",
         lines(ok(0, "enqueue", 1), ok(1, "dequeue", None, 1), ok(1, "drain", None, [1])),
         lines(ok(0, "enqueue", 1), info(0, "enqueue", 1), ok(1, "dequeue", None, 1),
               ok(1, "drain", None, [1]))),
    Case("queue", "unexpected", QUEUE, "out before it was put in",
         lines(ok(1, "dequeue", None, 1), ok(0, "enqueue", 1), ok(1, "drain", None, [])),
         lines(within(ok(0, "enqueue", 1), ok(1, "dequeue", None, 1)), ok(1, "drain", None, []))),
    Case("bank", "wrong-total", BANK, "one is missing",
         lines(read({"a": 5, "b": 5}), read({"a": 4, "b": 5})),
         lines(read({"a": 5, "b": 5}), read({"a": 4, "b": 6}))),
    Case("bank", "negative-balance", BANK, "less than nothing",
         lines(read({"a": 5, "b": 5}), read({"a": -1, "b": 11})),
         lines(read({"a": 5, "b": 5}), read({"a": 0, "b": 10}))),
    Case("bank", "nil-balance", BANK, "no balance of an account",
         lines(read({"a": 5, "b": 0}), read({"a": 5, "b": None})),
         lines(read({"a": 5, "b": 0}), read({"a": 5, "b": 0}))),
    Case("bank", "wrong-accounts", f"{BANK}: unexpected-key, wrong-total", "nothing is read",
         lines(read({"a": 5, "b": 0}), read({})),
         lines(read({"a": 5, "b": 0}), failed(1, "read", None))),
    Case("bank", "aborted-transfer-read", "ours", "half of a transfer that has failed is seen",
         lines(read({"a": 5}), failed(0, "transfer", {"number": 1}),
               ended(1, "fail", "read", None, {"halves": [1]}, None)),
         lines(read({"a": 5}), info(0, "transfer", {"number": 1}),
               ended(1, "fail", "read", None, {"halves": [1]}, None))),
    Case("lock", "token-went-back", LOCKS, "a later grant has a lesser token",
         lines(ok(0, "acquire", None, 2, "k"), ok(1, "acquire", None, 1, "k")),
         lines(within(ok(0, "acquire", None, 2, "k"), ok(1, "acquire", None, 1, "k")))),
    Case("lock", "token-granted-twice", LOCKS, "two have one token",
         lines(within(ok(0, "acquire", None, 1, "k"), ok(1, "acquire", None, 1, "k"))),
         lines(ok(0, "acquire", None, 1, "k"), ok(1, "acquire", None, 1, "l"))),
    Case("lock", "stale-token-accepted", LOCKS, "an older token writes after a newer one",
         lines(ok(0, "acquire", None, 1, "k"), ok(1, "acquire", None, 2, "k"),
               ok(1, "write", 2, 2, "k"), ok(0, "write", 1, 1, "k")),
         lines(ok(0, "acquire", None, 1, "k"), ok(1, "acquire", None, 2, "k"),
               ok(1, "write", 2, 2, "k"), failed(0, "write", 1, "k"))),
    Case("watch", "missed", WATCH, "a drain ends before the newest change",
         lines(put(1, "a", 1), put(2, "b", 1), watched("drain", 0, [1, "a", 1])),
         lines(put(1, "a", 1), within(watched("drain", 0, [1, "a", 1]), put(2, "b", 1)))),
    Case("watch", "unexpected", WATCH, "nobody has made the change",
         lines(put(1, "a", 1), watched("drain", 0, [1, "a", 1], [2, "b", 1])),
         lines(put(1, "a", 1), info(1, "put", [None, "b", 1]),
               watched("drain", 0, [1, "a", 1], [2, "b", 1]))),
    Case("watch", "repeated", WATCH, "a change is told twice",
         lines(put(1, "a", 1), watched("drain", 0, [1, "a", 1], [1, "a", 1])),
         lines(put(1, "a", 1), watched("watch", 0, [1, "a", 1]), watched("drain", 0, [1, "a", 1]))),
    Case("watch", "out-of-order", WATCH, "the later change is told first",
         lines(put(1, "a", 1), put(2, "b", 1), watched("drain", 0, [2, "b", 1], [1, "a", 1])),
         lines(put(1, "a", 1), put(2, "b", 1), watched("drain", 0, [1, "a", 1], [2, "b", 1]))),
    Case("watch", "version-went-back", WATCH, "a later change has a lesser version",
         lines(put(2, "a", 1), put(1, "b", 1), watched("drain", 0, [1, "b", 1], [2, "a", 1])),
         lines(within(put(2, "a", 1), put(1, "b", 1, process=1)),
               watched("drain", 0, [1, "b", 1], [2, "a", 1]))),
    Case("watch", "wrong-list", WATCH, "a list lacks a key",
         lines(put(1, "a", 1), ok(5, "watch", None, {"at": 1, "keys": []}),
               watched("drain", 2)),
         lines(put(1, "a", 1), ok(5, "watch", None, {"at": 0, "keys": []}),
               watched("drain", 1, [1, "a", 1]))),
    Case("group", "owned-twice", "KIP-848: a partition has one owner", "two in one generation",
         lines(member("m", 1, "x"), member("n", 1, "x")),
         lines(member("m", 1, "x"), member("n", 2, "x"), member("n", 1, "y"))),
    Case("topics", "nonlinearizable", KNOSSOS, "an acknowledged topic is not there",
         lines(ok(0, "create", 1, 1, "t"), ok(1, "topics", None, {})),
         lines(ok(0, "create", 1, 1, "t"), info(2, "delete", None, "t"),
               ok(1, "topics", None, {}))),
    Case("acl", "used-without-right", ACL, "the broker has the removal of a rule, and lets through",
         lines(rule("add"), reached(1), rule("remove"), reached(1), used("allowed")),
         lines(used("denied"), rule("add"), reached(1, 2), rule("remove"), reached(2),
               used("allowed"), used("denied"))),
    Case("acl", "used-without-right", ACL, "a use that began before the broker had it ends later, "
         "and one behind it",
         lines(rule("add"), reached(1), rule("remove"),
               within(used("allowed"), reached(1)), used("allowed", process=4)),
         lines(rule("add"), reached(1), rule("remove"),
               within(used("allowed"), reached(1)), used("denied", process=4))),
    Case("acl", "used-without-right", ACL, "a broker that has refused lets through again",
         lines(rule("add"), reached(1), rule("remove"), used("denied"), used("allowed")),
         lines(used("denied"), rule("add"), reached(1), rule("remove"), used("allowed"),
               used("denied"))),
    Case("acl", "used-without-right", ACL, "changes are taken up in another order",
         lines(rule("add"), rule("remove"), reached(1), used("allowed")),
         lines(used("denied"),
               within(rule("remove"), ended(7, "ok", "add", [*RULE], [*RULE], None)),
               reached(1), used("allowed"))),
    Case("acl", "used-without-right", ACL, "a removal was acknowledged, then the broker is asked",
         lines(rule("add"), reached(1), rule("remove"), reached(1), used("allowed")),
         lines(used("denied"), rule("add"), within(reached(1), rule("remove")), used("allowed"))),
    Case("acl", "used-without-right", ACL, "a rule denies what another allows",
         lines(rule("add"), rule("add", permission="DENY", principal="User:*"), reached(1),
               used("allowed")),
         lines(rule("add"), rule("add", permission="DENY", principal="User:b"), reached(1),
               used("allowed"))),
    Case("acl", "used-without-right", ACL, "nobody has begun to allow it",
         lines(used("allowed"), rule("add"), reached(1), used("allowed")),
         lines(used("denied"), rule("add"), used("allowed"), reached(1), used("allowed"))),
    Case("acl", "used-without-right", ACL, "a change that has failed counts",
         lines(used("denied"), failed(0, "add", [*RULE]), used("allowed")),
         lines(used("denied"), info(0, "add", [*RULE]), used("allowed"))),
    Case("acl", "denied-with-right", ACL, "a rule for a prefix is not found",
         lines(rule("add", "", "PREFIXED"), reached(1), used("denied")),
         lines(rule("add", "x", "PREFIXED"), reached(1), used("denied"))),
    Case("acl", "denied-with-right", ACL, "a rule for all topics is not found",
         lines(rule("add", "*"), reached(1), used("denied")),
         lines(rule("add", "*", "PREFIXED"), reached(1), used("denied"))),
    Case("acl", "denied-with-right", ACL, "a removal of unknown outcome takes effect twice",
         lines(rule("add"), reached(1), info(2, "remove", [*RULE]), used("denied"), rule("add"),
               reached(1), used("allowed"), used("denied")),
         lines(used("denied"), rule("add"), reached(1), info(2, "remove", [*RULE]),
               used("allowed"), rule("add"), reached(1), used("allowed"), used("denied"))),
    Case("kafka", "lost-write", KAFKA, "what came later is polled, it never is",
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([1, 2])),
         lines(sent("x", 0, 1, kind="info"), sent("x", 1, 2), polled([1, 2]))),
    Case("kafka", "torn-transaction", "ours; KIP-98",
         "half of a transaction is polled, and what was sent later",
         lines(ended(0, "info", "txn", [["send", "x", 1], ["send", "y", 2]],
                     [["send", "x", 1], ["send", "y", 2]], None),
               polled([0, 1]), sent("y", 0, 3),
               ended(1, "ok", "poll", [["poll"]], [["poll", {"y": [[0, 3]]}]], None)),
         lines(sent("y", 0, 3), within(
             ended(0, "info", "txn", [["send", "x", 1], ["send", "y", 2]],
                   [["send", "x", 1], ["send", "y", 2]], None), polled([0, 1])),
               ended(1, "ok", "poll", [["poll"]], [["poll", {"y": [[0, 3]]}]], None))),
    Case("kafka", "unseen", KAFKA, "acknowledged, and never polled",
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1])),
         lines(sent("x", 0, 1), sent("x", 1, 2, kind="info"), polled([0, 1]))),
    Case("kafka", "duplicate", KAFKA, "one value at two offsets",
         lines(sent("x", 0, 1), polled([0, 1], [1, 1])),
         lines(sent("x", 0, 1), polled([0, 1]), polled([0, 1], process=2))),
    Case("kafka", "inconsistent-offsets", KAFKA, "two values at one offset",
         lines(sent("x", 0, 1), sent("x", 0, 2), polled([0, 1]), polled([0, 2], process=2)),
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1], [1, 2]))),
    Case("kafka", "G1a", KAFKA, "what has failed is polled",
         lines(sent("x", 0, 1, kind="fail"), polled([0, 1])),
         lines(sent("x", 0, 1, kind="info"), sent("x", 1, 2), polled([0, 1], [1, 2]))),
    Case("kafka", "unexpected", "ours", "nobody has sent it",
         lines(sent("x", 0, 1), polled([0, 1], [1, 9])), lines(sent("x", 0, 1), polled([0, 1]))),
    Case("kafka", "int-poll-skip", KAFKA, "a poll jumps over a record",
         lines(sent("x", 0, 1), sent("x", 1, 2), sent("x", 2, 3), polled([0, 1], [2, 3]),
               polled([1, 2], process=2)),
         lines(sent("x", 0, 1), sent("x", 2, 3), polled([0, 1], [2, 3]))),
    Case("kafka", "int-nonmonotonic-poll", KAFKA, "a poll goes back",
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([1, 2], [0, 1])),
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1], [1, 2]))),
    Case("kafka", "poll-skip", KAFKA, "the next poll jumps over a record",
         lines(sent("x", 0, 1), sent("x", 1, 2), sent("x", 2, 3), polled([0, 1]), polled([2, 3]),
               polled([1, 2], process=2)),
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1]), polled([1, 2]))),
    Case("kafka", "nonmonotonic-poll", KAFKA, "the next poll goes back",
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1], [1, 2]), polled([0, 1])),
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1], [1, 2]),
               polled([0, 1], process=2))),
    Case("kafka", "spurious-zero-offset", KAFKA, "told offset 0, polled elsewhere",
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([1, 2], [2, 1])),
         lines(sent("x", 0, 1), sent("x", 1, 2), polled([0, 1], [1, 2]))),
    Case("kafka", "precommitted-read", KAFKA, "a transaction polls what it sends itself",
         lines(acted(0, [["send", "x", [0, 1]], ["poll", {"x": [[0, 1]]}]])),
         lines(acted(0, [["send", "x", [0, 1]]]), acted(0, [["poll", {"x": [[0, 1]]}]]))),
    Case("kafka", "int-nonmonotonic-send", KAFKA, "of one transaction, sent later, stands earlier",
         lines(acted(0, [["send", "x", [1, 1]], ["send", "x", [0, 2]]]), polled([0, 2], [1, 1])),
         lines(acted(0, [["send", "x", [0, 1]], ["send", "x", [1, 2]]]), polled([0, 1], [1, 2]))),
    Case("kafka", "G1c", KAFKA, "two transactions poll what the other sends",
         lines(within(acted(0, [["send", "x", [0, 1]], ["poll", {"y": [[0, 2]]}]]),
                      acted(1, [["send", "y", [0, 2]], ["poll", {"x": [[0, 1]]}]]))),
         lines(within(acted(0, [["send", "x", [0, 1]], ["poll", {"y": [[0, 2]]}]]),
                      acted(1, [["send", "y", [0, 2]]])), polled([0, 1], process=2))),
    Case("kafka", "nonmonotonic-send", KAFKA, "sent later, stands earlier",
         lines(sent("x", 1, 1), sent("x", 0, 2), polled([0, 2], [1, 1])),
         lines(sent("x", 1, 1), sent("x", 0, 2, process=3), polled([0, 2], [1, 1]))),
)  # fmt: skip
