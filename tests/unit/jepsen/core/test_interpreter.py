"""The interpreter with clients that succeed, fail, crash, hang and cannot be opened."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from jepsen.client import Completion, failed, ok, unknown
from jepsen.core._interpreter import Interpreter
from jepsen.generator.combinators import Limit, clients, nemesis, once, phases
from jepsen.generator.core import Numbered, Todo
from jepsen.history import Op, OpType, operations

if TYPE_CHECKING:
    from jepsen.generator.core import Generator

pytestmark = pytest.mark.req("J1")


class Scripted:
    """A client whose operations say how they end."""

    def __init__(self, process: int, opened: list[int], closed: list[int]) -> None:
        self.process = process
        self._opened = opened
        self._closed = closed

    async def open(self) -> None:
        if self.process == 1:
            raise OSError("nobody there")
        self._opened.append(self.process)

    async def close(self) -> None:
        self._closed.append(self.process)

    async def invoke(self, op: Op) -> Completion:
        match op.f:
            case "ok":
                return ok(op.value)
            case "fail":
                return failed(op.value, "refused")
            case "crash":
                raise RuntimeError("what is this?")
            case "hang":
                await asyncio.Event().wait()
        return unknown(op.value, "lost")


class Broken:
    """A nemesis that cannot do what it should."""

    async def open(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""

    async def invoke(self, op: Op) -> Completion:
        raise OSError("no such node")


async def history_of(
    generator: Generator, concurrency: int = 1
) -> tuple[list[Op], list[int], list[int]]:
    lines: list[Op] = []
    opened: list[int] = []
    closed: list[int] = []
    interpreter = Interpreter(
        concurrency,
        lambda process: Scripted(process, opened, closed),
        Broken(),
        lines.append,
        random.Random(1),
        op_timeout_s=0.05,
    )
    await interpreter.run(generator)
    await interpreter.close()
    return lines, opened, closed


def of(*functions: str) -> Generator:
    return clients(Limit(len(functions), Numbered(lambda at: Todo(functions[at], at))))


async def test_what_ends_is_noted_with_what_it_came_to() -> None:
    lines, opened, closed = await history_of(of("ok", "fail"))
    assert [(op.process, op.type, op.value, op.error) for op in lines] == [
        (0, OpType.INVOKE, 0, None),
        (0, OpType.OK, 0, None),
        (0, OpType.INVOKE, 1, None),
        (0, OpType.FAIL, 1, "refused"),
    ]
    assert [op.index for op in lines] == [0, 1, 2, 3]
    assert sorted(op.time for op in lines) == [op.time for op in lines]
    assert (opened, closed) == ([0], [0])


@pytest.mark.parametrize("f", ["crash", "hang", "lost"])
async def test_a_process_with_an_unknown_outcome_is_never_used_again(f: str) -> None:
    lines, opened, closed = await history_of(of(f, "ok", "ok"), concurrency=1)
    assert [op.type for op in lines if op.process == 0] == [OpType.INVOKE, OpType.INFO]
    assert len(operations(lines)) == 3
    assert {op.process for op in lines} == {0, 1}
    assert closed.count(0) == 1
    # Process 1 never gets a client: what it was to do has certainly not happened.
    assert {op.type for op in lines if op.process == 1} == {OpType.INVOKE, OpType.FAIL}
    assert opened == [0]


async def test_a_fault_that_cannot_be_done_ends_nothing() -> None:
    lines, _, _ = await history_of(phases(nemesis(once("kill")), of("ok")))
    told = [op for op in lines if op.process == "nemesis"]
    assert [op.type for op in told] == [OpType.INVOKE, OpType.INFO]
    assert "no such node" in str(told[1].error)
    assert lines[-1].type is OpType.OK
