"""A fork of a warm interpreter makes the same run of a seed as an interpreter of its own."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.runner.determinism import run_in_subprocess
from jepsen.simulator.runner.fork_server import ForkServers
from tests.unit.jepsen.simulator.runner import scenarios

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAOS = "tests.simulation.cluster_chaos:chaos"
KV = "tests.simulation.kv_scenarios:keys_stay_linearizable"


@pytest.fixture(scope="module")
def warm() -> Iterator[ForkServers]:
    with ForkServers() as interpreters:
        yield interpreters


def target(scenario: str) -> str:
    return f"{scenarios.__name__}:{scenario}"


OURS = [target(name) for name in ("websocket", "chaos", "kafka", "chance")]


@pytest.mark.req("J1")
@pytest.mark.parametrize("scenario", [*OURS, CHAOS, KV])
def test_a_warm_interpreter_replays_what_a_cold_one_ran(warm: ForkServers, scenario: str) -> None:
    """And so the same seed is the same run, also with libraries that reach past the seams.

    The second run of a seed finds more imported than the first, the third follows another.
    """
    cold = run_in_subprocess(scenario, 3)
    assert cold.ok, cold.output
    assert len(cold.trace_hash) == 64
    runs = [warm.run(scenario, seed) for seed in (3, 3, 4, 3)]
    assert [run.output for run in runs if run.seed == 3] == [cold.output] * 3
    assert runs[2].trace_hash != cold.trace_hash
    assert cold.events > 0
    assert cold.simulated_s > 0
    assert runs[0].processor_s > 0


@pytest.mark.req("J1")
def test_options_reach_the_run(warm: ForkServers) -> None:
    options = ["--faults", "0,2", "--operations", "5"]
    result = warm.run(CHAOS, 7, options=options)
    assert result.ok, result.output
    assert result == run_in_subprocess(CHAOS, 7, options=options)


def test_a_failing_run_tells_its_story_and_the_next_is_none_the_worse(
    warm: ForkServers,
) -> None:
    failed = warm.run(target("failing"), 7)
    assert not failed.ok
    assert "LookupError: as planned" in failed.output
    assert warm.run(target("chance"), 1).ok


def test_a_run_that_never_ends_is_stopped_and_says_where_it_was(warm: ForkServers) -> None:
    # On a busy machine it may have to be given longer to get there.
    for timeout_s in (0.5, 5, 50):
        stuck = warm.run(target("endless"), 1, timeout_s=timeout_s)
        assert not stuck.ok
        if "in endless" in stuck.output:
            return
    pytest.fail(stuck.output)


def test_whoever_is_interrupted_leaves_no_answer_to_the_next(warm: ForkServers) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise InterruptedError

    handler = signal.signal(signal.SIGUSR1, interrupt)
    here = threading.get_ident()
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(here, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(InterruptedError):
            warm.run(target("endless"), 1, timeout_s=5)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, handler)
    assert warm.run(target("chance"), 2) == run_in_subprocess(target("chance"), 2)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no.such_module:chaos", "no module no.such_module"),
        (target("no_such_function"), "has no scenario no_such_function"),
    ],
)
def test_a_target_that_does_not_exist_is_named(
    warm: ForkServers, name: str, complaint: str
) -> None:
    missing = warm.run(name, 1)
    assert not missing.ok
    assert complaint in missing.output
