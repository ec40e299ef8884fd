"""Options of the whole suite."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from jepsen.simulator.runner.fork_server import ForkServers

if TYPE_CHECKING:
    from collections.abc import Iterator


# How long an example takes says more of the machine than of the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--histories",
        metavar="DIR",
        type=Path,
        help="A folder of real histories with known verdicts, which are no part of the project.",
    )
    parser.addoption(
        "--dashboards",
        metavar="DIR",
        type=Path,
        help="packaging/examples/metrics of a checkout of strimzi-kafka-operator.",
    )


def pytest_configure() -> None:
    """Has interrupts heard by the programs that tests start.

    A shell starts what runs in its background with SIGINT ignored, which children inherit.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def histories(request: pytest.FixtureRequest) -> Path:
    """The folder of known histories; skips the test without it."""
    folder: Path | None = request.config.getoption("--histories")
    if folder is None:
        pytest.skip("needs known histories: --histories=DIR")
    return folder


@pytest.fixture(scope="session")
def simulator() -> Iterator[ForkServers]:
    """Runs seeds of scenarios, each in a process of its own."""
    with ForkServers() as interpreters:
        yield interpreters
