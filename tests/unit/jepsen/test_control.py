"""Clusters that a program of their owner breaks: what it is called with, what it must answer."""

from __future__ import annotations

import random
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from jepsen.env.base import ClusterSpec
from jepsen.env.external import ExternalEnvironment
from jepsen.errors import InputError
from jepsen.history import Op, OpType
from jepsen.nemesis import Nemesis

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J2", "J5")
PROGRAM = """
import pathlib, sys
calls = sys.argv[1]
words = sys.argv[2:]
if words == ["nodes"]:
    print("controller c-1 101", "broker b-1 1", "broker b-2 2", sep="\\n")
elif words == ["pause", "b-2"]:
    sys.exit("trouble\\nb-2 cannot be paused")
else:
    with pathlib.Path(calls).open("a") as file:
        file.write(" ".join(words) + "\\n")
"""


def command(folder: Path, program: str = PROGRAM) -> str:
    """Of a program that writes down what it is called with."""
    path = folder / "breaker.py"
    path.write_text(program)
    return shlex.join([sys.executable, str(path), str(folder / "calls")])


def environment(control: str) -> ExternalEnvironment:
    return ExternalEnvironment(ClusterSpec(bootstrap_servers="h:1", control=control))


async def test_the_nemesis_has_the_program_break_the_nodes_it_names(tmp_path: Path) -> None:
    cluster = environment(command(tmp_path))
    assert (cluster.controllers, cluster.brokers) == (["c-1"], ["b-1", "b-2"])
    assert (cluster.broker_name(2), cluster.broker_name(101)) == ("b-2", None)
    nemesis = Nemesis(cluster, random.Random(0))
    killed = (await nemesis.invoke(Op(0, 0, "nemesis", OpType.INVOKE, "kill", "one"))).value
    await nemesis.invoke(Op(1, 0, "nemesis", OpType.INVOKE, "start"))
    await cluster.terminate("b-1")
    await cluster.resume("b-2")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"kill {killed[0]}", f"start {killed[0]}", "stop b-1", "resume b-2"]


async def test_what_the_program_could_not_do_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pause b-2: b-2 cannot be paused"):
        await environment(command(tmp_path)).pause("b-2")


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('broker b-1')", "write `controller NAME ID`"),
        ("print('controller c-1 101')", "no line `broker NAME ID`"),
        ("raise SystemExit('no such cluster')", "no such cluster"),
    ],
)
def test_a_program_that_names_no_nodes_is_refused(tmp_path: Path, program: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        environment(command(tmp_path, program))


@pytest.mark.parametrize("control", ["/no/such/program", " ", "an 'open quote"])
def test_what_is_no_program_is_refused(control: str) -> None:
    with pytest.raises(InputError, match="--control"):
        environment(control)
