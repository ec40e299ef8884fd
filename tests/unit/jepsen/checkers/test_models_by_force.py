"""Each model of the linearizability checker beside its definition, on small random histories.

What a thing does is written down once more here, with plain lists, and every order is tried.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from jepsen.checkers._simple import check_queue
from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.registry import MODELS, model_named
from jepsen.history import OpType, operations
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.history import Op, Operation

pytestmark = pytest.mark.req("J4")

Call = tuple[str, Any, Any]
"""(function, argument, result)"""


class Outcome(NamedTuple):
    """Of a call that takes effect."""

    f: str
    argument: Any
    result: Any
    known: bool


def register(value: Any, one: Outcome) -> list[Any]:
    """The values after it; none if it cannot have had that result."""
    if one.f == "read":
        return [value] if not one.known or value == one.result else []
    if one.f == "write":
        return [one.argument]
    return [one.argument[1]] if value == one.argument[0] else []


def mutex(held: Any, one: Outcome) -> list[Any]:
    """As `register`."""
    return [not held] if bool(held) is (one.f == "release") else []


def text(value: Any, one: Outcome) -> list[Any]:
    """As `register`."""
    value = value or ""
    if one.f == "get":
        return [value] if not one.known or value == one.result else []
    return [value + one.argument if one.f == "append" else one.argument or ""]


def elements(inside: Any, one: Outcome) -> list[Any]:
    """As `register`."""
    inside = inside or []
    if one.f == "add":
        return [sorted({*inside, one.argument})]
    return [inside] if not one.known or inside == sorted(one.result) else []


def queue(inside: Any, one: Outcome) -> list[Any]:
    """As `register`."""
    return bag(inside, one)[:1] if one.f == "enqueue" or not inside else first(inside, one)


def first(inside: list[Any], one: Outcome) -> list[Any]:
    """What is left when the first is taken."""
    return [] if one.known and inside[0] != one.result else [inside[1:]]


def bag(inside: Any, one: Outcome) -> list[Any]:
    """As `register`."""
    inside = inside or []
    if one.f == "enqueue":
        return [[*inside, one.argument]]
    if one.known and one.result is None:
        return [] if inside else [inside]
    taken = [at for at, value in enumerate(inside) if not one.known or value == one.result]
    return [[*inside[:at], *inside[at + 1 :]] for at in taken]


def drained(inside: Any, one: Outcome) -> list[Any]:
    """As `bag`, with a drain that takes all; a dequeue of nil says nothing."""
    if one.f == "drain":
        return [[]] if sorted(one.result) == sorted(inside or []) else []
    return [inside] if one.known and one.result is None else bag(inside, one)


def registers(values: Any, one: Outcome) -> list[Any]:
    """As `register`."""
    values = dict(values or {})
    for what, key, value in one.result if one.known else one.argument:
        if what == "write":
            values[key] = value
        elif one.known and values.get(key) != value:
            return []
    return [values]


DEFINITIONS: dict[str, Callable[[Any, Outcome], list[Any]]] = {
    "register": register,
    "cas-register": register,
    "mutex": mutex,
    "kv": text,
    "set": elements,
    "fifo-queue": queue,
    "unordered-queue": bag,
    "multi-register": registers,
    "total-queue": drained,
}


def fits(name: str, every: list[Operation], state: Any = None) -> bool:
    """Whether the operations have an order that explains them, from that state on."""
    sure = [one for one in every if one.type is OpType.OK]
    if not sure:
        return True
    first_end = min(one.completion.index for one in sure if one.completion)
    for one in every:
        if one.invoke.index > first_end:
            continue
        known = one.type is OpType.OK
        result = one.completion.value if known and one.completion else None
        rest = [other for other in every if other is not one]
        outcome = Outcome(one.invoke.f, one.invoke.value, result, known)
        for then in DEFINITIONS[name](state, outcome):
            if fits(name, rest, then):
                return True
    return False


def call(name: str, rng: random.Random) -> Call:
    """A call with a result of its kind, right or wrong."""
    value = rng.choice((1, 2, None)) if "register" in name else rng.choice((1, 1, 2))
    match name:
        case "register" | "cas-register":
            f = rng.choice(("read", "read", "write", "cas"))
            pair = [value, rng.choice((1, 2))]
            return {"read": (f, None, value), "write": (f, value, value), "cas": (f, pair, pair)}[f]
        case "mutex":
            return rng.choice((("acquire", None, None), ("release", None, None)))
        case "kv":
            f = rng.choice(("get", "get", "put", "append", "delete"))
            text = rng.choice(("a", "b"))
            told = rng.choice(("", "a", "b", "ab", "ba", "aa"))
            return {"get": (f, None, told), "delete": (f, None, None)}.get(f, (f, text, text))
        case "set":
            seen = rng.choice(([], [1], [2], [2, 1], [1, 1]))
            return rng.choice((("add", value, value), ("read", None, seen)))
        case "total-queue":
            puts = [("enqueue", value, value)] * 2
            return rng.choice((*puts, ("dequeue", None, rng.choice((1, 2, None)))))
        case "multi-register":
            asked = [[rng.choice(("read", "write")), key, value] for key in rng.choice(("x", "xy"))]
            blank = [[what, key, value if what == "write" else None] for what, key, value in asked]
            return "txn", blank, asked
    taken = rng.choice((1, 1, 2, None))
    return rng.choice((("enqueue", value, value), ("dequeue", None, taken)))


def tiny(name: str, rng: random.Random) -> list[Op]:
    """Up to six calls of three clients; some fail, some are of unknown outcome."""
    lines: list[tuple[Any, ...]] = []
    pending: dict[int, Call] = {}
    left = rng.randint(2, 6)
    clients = list(range(3))
    while left or pending:
        at = rng.randrange(3)
        client = clients[at]
        if client in pending:
            f, argument, result = pending.pop(client)
            kind = rng.choice(("ok",) * 7 + ("info", "info", "fail"))
            lines.append((client, kind, f, result if kind == "ok" else argument))
            clients[at] += 3 * (kind == "info")
        elif left:
            left -= 1
            pending[client] = call(name, rng)
            lines.append((client, "invoke", *pending[client][:2]))
    return history(*lines)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_says_what_trying_every_order_says(name: str) -> None:
    rng = random.Random(name)
    said = {True: 0, False: 0}
    for _ in range(700):
        lines = tiny(name, rng)
        if any(op.f == "cas" and op.type is OpType.FAIL for op in lines):
            continue  # it says something: `test_linearizable.py`
        mine = [one for one in operations(lines) if one.type is not OpType.FAIL]
        right = fits(name, mine)
        said[right] += 1
        assert check_linearizable(lines, model_named(name)).valid is right, lines
    assert min(said.values()) > 50


def test_what_no_queue_does_is_not_valid() -> None:
    """Nor is what an unknown dequeue took, which is lost as in Jepsen."""
    rng = random.Random(1)
    said = {True: 0, False: 0}
    for _ in range(1500):
        end = rng.choice(([], [1], [2], [1, 1], [1, 2]))
        lines = tiny("total-queue", rng)
        drain = [(9, "invoke", "drain", None), (9, "ok", "drain", end)]
        lines += [replace(op, index=len(lines) + op.index) for op in history(*drain)]
        right = fits(
            "total-queue", [one for one in operations(lines) if one.type is not OpType.FAIL]
        )
        took = any(op.f == "dequeue" and op.type is OpType.INFO for op in lines)
        valid = check_queue(lines).valid
        said[right] += 1
        assert valid is right or (took and right and valid is False), lines
    assert min(said.values()) > 100


def test_nil_of_registers_is_a_value_unless_the_form_of_the_history_says_otherwise() -> None:
    written = [(0, kind, "txn", [["write", "x", 1]]) for kind in ("invoke", "ok")]
    read = [(0, kind, "txn", [["read", "x", None]]) for kind in ("invoke", "ok")]
    lines = history(*written, *read)
    assert check_linearizable(lines, model_named("multi-register")).valid is False
    assert check_linearizable(lines, model_named("multi-register", lenient=True)).valid is True


def test_bags_and_sets_have_no_order() -> None:
    put = [(0, kind, "enqueue", value) for value in (1, 2) for kind in ("invoke", "ok")]
    take = [(0, "invoke", "dequeue", None), (0, "ok", "dequeue", 2)]
    lines = history(*put, *take)
    assert check_linearizable(lines, model_named("unordered-queue")).valid is True
    assert check_linearizable(lines, model_named("fifo-queue")).valid is False
    assert set(DEFINITIONS) == {*MODELS, "total-queue"}
    added = [(0, kind, "add", value) for value in (1, 2) for kind in ("invoke", "ok")]
    for seen, valid in (([2, 1], True), ([1], False), ([1, 2, 3], False), (None, False)):
        read = [(0, "invoke", "read", None), (0, "ok", "read", seen)]
        assert check_linearizable(history(*added, *read), model_named("set")).valid is valid
