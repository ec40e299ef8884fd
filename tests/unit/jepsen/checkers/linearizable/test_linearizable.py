"""Linearizability: small cases by hand, random ones against trying everything, the bounds."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from jepsen.checkers.linearizable import Budget, check_linearizable
from jepsen.checkers.linearizable.models import Mutex, Queue, Register, StringValue
from jepsen.checkers.verdict import merge_valid
from jepsen.history import Op, OpType
from tests.properties.linearizability import verdicts
from tests.unit.jepsen.histories import history, made_history, spoiled

pytestmark = pytest.mark.req("J4")

REGISTER = Register(failed_cas_observes=True)


@pytest.mark.parametrize(
    ("reads", "valid"), [((0, 1), True), ((1, 1), True), ((1, 0), False), ((0, 2), False)]
)
def test_two_reads_beside_a_write(reads: tuple[int, int], valid: bool) -> None:
    lines = history(
        (0, "invoke", "write", 1),
        (1, "invoke", "read", None),
        (1, "ok", "read", reads[0]),
        (1, "invoke", "read", None),
        (1, "ok", "read", reads[1]),
        (0, "ok", "write", 1),
    )
    assert check_linearizable(lines, Register(0)).valid is valid


def test_a_stale_read_is_found_and_explained() -> None:
    lines = history(
        (0, "invoke", "write", 1),
        (0, "ok", "write", 1),
        (1, "invoke", "write", 2),
        (2, "invoke", "read", None),
        (0, "invoke", "read", None),
        (0, "ok", "read", 2),
        (2, "ok", "read", 1),
        (0, "invoke", "read", None),
        (0, "ok", "read", 1),
        (1, "ok", "write", 2),
    )
    (failure,) = check_linearizable(lines, REGISTER).failures
    assert failure.counterexample is not None
    example = failure.counterexample
    assert example.operation.completion == lines[8]
    assert example.previous is not None
    assert example.previous.completion == lines[6]
    (configuration,) = example.configurations
    assert configuration.state == 2
    assert [one.invoke for one in configuration.pending] == [lines[7]]
    assert [one.invoke for one in configuration.effective] == [lines[2]]
    assert check_linearizable(lines[:8], REGISTER).valid is True


def test_a_write_of_the_same_value_may_be_needed_later() -> None:
    """To let it take effect as soon as it changes nothing would lose a valid history."""
    lines = history(
        (0, "invoke", "write", 0),
        (1, "invoke", "write", 1),
        (1, "ok", "write", 1),
        (0, "ok", "write", 0),
        (1, "invoke", "read", None),
        (1, "ok", "read", 0),
    )
    assert check_linearizable(lines, Register(0)).valid is True


def test_what_crashed_may_take_effect_at_any_later_time_but_once() -> None:
    lines: list[tuple[Any, ...]] = [
        (0, "invoke", "write", 1),
        (0, "info", "write", 1),
        (1, "invoke", "write", 2),
        (1, "ok", "write", 2),
        (1, "invoke", "read", None),
        (1, "ok", "read", 1),
        (1, "invoke", "write", 2),
        (1, "ok", "write", 2),
    ]
    assert check_linearizable(history(*lines), REGISTER).valid is True
    again = [(1, "invoke", "read", None), (1, "ok", "read", 1)]
    assert check_linearizable(history(*lines, *again), REGISTER).valid is False
    second = [(3, "invoke", "write", 1), (3, "info", "write", 1)]
    assert check_linearizable(history(*second, *lines, *again), REGISTER).valid is True


def test_what_never_returned_is_as_what_crashed() -> None:
    lines = [(0, "invoke", "write", 1), (1, "invoke", "read", None), (1, "ok", "read", 1)]
    assert check_linearizable(history(*lines), REGISTER).valid is True


def test_what_failed_has_not_happened() -> None:
    lines = history(
        (0, "invoke", "write", 1),
        (0, "fail", "write", 1),
        (1, "invoke", "read", None),
        (1, "ok", "read", 1),
    )
    assert check_linearizable(lines, REGISTER).valid is False


@pytest.mark.parametrize("observes", [True, False])
def test_a_failed_cas_says_something_only_if_the_model_says_so(observes: bool) -> None:
    lines = history((0, "invoke", "cas", [0, 1]), (0, "fail", "cas", [0, 1]))
    model = Register(0, failed_cas_observes=observes)
    assert check_linearizable(lines, model).valid is not observes


def test_a_failure_with_an_error_is_no_observation() -> None:
    """It says why nothing was tried."""
    invoke, failed = history((0, "invoke", "cas", [0, 1]), (0, "fail", "cas", [0, 1]))
    refused = replace(failed, error="not the leader")
    assert check_linearizable([invoke, failed], Register(0, True)).valid is False
    assert check_linearizable([invoke, refused], Register(0, True)).valid is True


def test_keys_are_checked_one_by_one() -> None:
    lines = history(
        (0, "invoke", "write", 1, "a"),
        (0, "ok", "write", 1, "a"),
        (0, "invoke", "read", None, "b"),
        (0, "ok", "read", 1, "b"),
        (0, "invoke", "read", None, "a"),
        (0, "ok", "read", 1, "a"),
    )
    result = check_linearizable(lines, REGISTER)
    assert result.valid is False
    assert {key.key: key.valid for key in result.keys} == {"a": True, "b": False}
    assert [failure.key for failure in result.failures] == ["b"]


def test_the_nemesis_is_left_out() -> None:
    lines = history(("nemesis", "info", "kill", None), ("nemesis", "info", "start", None))
    assert check_linearizable(lines, REGISTER).valid is True


def test_a_lock_is_held_by_one() -> None:
    free = [(0, "invoke", "acquire", None), (0, "ok", "acquire", None)]
    assert check_linearizable(history(*free), Mutex()).valid is True
    twice = [*free, (1, "invoke", "acquire", None), (1, "ok", "acquire", None)]
    assert check_linearizable(history(*twice), Mutex()).valid is False
    released = [(2, "invoke", "release", None), (2, "info", "release", None)]
    assert check_linearizable(history(*released, *twice), Mutex()).valid is True


@pytest.mark.parametrize(("order", "valid"), [((1, 2), True), ((2, 1), False)])
def test_a_queue_is_first_in_first_out(order: tuple[int, int], valid: bool) -> None:
    lines = [
        line
        for f, value in [("enqueue", 1), ("enqueue", 2), *(("dequeue", v) for v in order)]
        for line in ((0, "invoke", f, value), (0, "ok", f, value))
    ]
    empty = [(0, "invoke", "dequeue", None), (0, "ok", "dequeue", None)]
    assert check_linearizable(history(*lines, *empty), Queue()).valid is valid
    assert check_linearizable(history(*lines[:4], *empty), Queue()).valid is False


def test_text_is_appended() -> None:
    lines = history(
        (0, "invoke", "append", "a"),
        (1, "invoke", "append", "b"),
        (1, "ok", "append", "b"),
        (0, "ok", "append", "a"),
        (0, "invoke", "get", None),
        (0, "ok", "get", "ba"),
    )
    assert check_linearizable(lines, StringValue()).valid is True
    lost = [*lines[:5], Op(5, 5, 0, OpType.OK, "get", "b")]
    assert check_linearizable(lost, StringValue()).valid is False


def test_unknown_functions_are_refused() -> None:
    for model in (Register(), StringValue(), Mutex(), Queue()):
        with pytest.raises(ValueError, match="no fly"):
            check_linearizable(history((0, "invoke", "fly", 1), (0, "ok", "fly", 1)), model)


@pytest.mark.parametrize("first", [0, 10_000])
def test_the_verdict_is_that_of_trying_everything(first: int) -> None:
    """`make properties-linearizable` compares many more."""
    seeds = range(first, first + 600)
    found = {seed: verdicts(seed) for seed in seeds}
    assert [seed for seed, (ours, right) in found.items() if ours is not right] == []
    assert 100 < sum(right for _, right in found.values()) < 500


def test_a_value_that_was_hidden_again_may_have_been_read() -> None:
    """A write that is still under way was read just before another took its place."""
    lines = [
        (0, "invoke", "write", 1),
        (1, "invoke", "read", None),
        (2, "invoke", "write", 2),
        (2, "ok", "write", 2),
        (1, "ok", "read", 1),
        (2, "invoke", "read", None),
        (2, "ok", "read", 2),
        (0, "ok", "write", 1),
    ]
    assert check_linearizable(history(*lines), REGISTER).valid is True
    late = [lines[0], *lines[2:4], lines[1], *lines[4:]]
    # It began after the write that returned: the value that it read is the one that stays.
    assert check_linearizable(history(*late), REGISTER).valid is False


def test_what_followed_from_a_hidden_value_is_done_once() -> None:
    lines: list[tuple[Any, ...]] = [
        (0, "invoke", "write", 1),
        (1, "invoke", "cas", [1, 3]),
        (3, "invoke", "cas", [1, 3]),
        (2, "invoke", "write", 2),
        (2, "ok", "write", 2),
        (1, "ok", "cas", [1, 3]),
        (0, "ok", "write", 1),
        (2, "invoke", "read", None),
        (2, "ok", "read", 2),
    ]
    failed, done = (3, "fail", "cas", [1, 3]), (3, "ok", "cas", [1, 3])
    assert check_linearizable(history(*lines, failed), REGISTER).valid is True
    assert check_linearizable(history(*lines, done), REGISTER).valid is False


# --- bounds ---------------------------------------------------------------------------------------


def hard_history() -> list[Op]:
    rng = random.Random(5)
    lines = made_history(rng, operation_count=300, concurrency=20, domain=5, crashes=0.05)
    return spoiled(rng, lines, domain=5)


def test_a_check_ends_at_its_deadline() -> None:
    ticks = itertools.count()
    budget = Budget(deadline=3, clock=lambda: float(next(ticks)))
    result = check_linearizable(hard_history(), REGISTER, budget)
    assert result.valid == "unknown"
    assert next(ticks) == 5
    assert "deadline" in result.keys[0].why_unknown


def test_a_check_keeps_within_its_memory() -> None:
    result = check_linearizable(hard_history(), REGISTER, Budget(memory_bytes_max=200_000))
    assert result.valid == "unknown"
    assert "memory" in result.keys[0].why_unknown


def test_verdicts_are_merged() -> None:
    assert merge_valid([]) is True
    assert merge_valid([True, "unknown", True]) == "unknown"
    assert merge_valid(["unknown", False, True]) is False
