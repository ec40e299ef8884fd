"""What tests take for `raftctl` does as `python -m raftctl` does."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.integration.commands import ROOT, raftctl


@pytest.mark.parametrize("words", [("version",), ("storage", "info", "--config", "/nowhere")])
def test_a_forked_command_is_that_of_a_new_interpreter(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "raftctl", *words]
    cold = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    forked = raftctl(*words)
    assert (forked.status, forked.stdout, forked.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )
    assert cold.stdout or cold.stderr


def test_a_command_sees_the_environment_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    raftctl("version")
    monkeypatch.setenv("_RAFTCTL_COMPLETE", "source_bash")
    assert "complete" in raftctl("version").stdout


def test_a_command_that_takes_too_long_is_ended() -> None:
    # Connections are made, and nobody answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        endless = ("kv", "get", "key", "--controllers", address, "--timeout", "60")
        with pytest.raises(subprocess.TimeoutExpired):
            raftctl(*endless, timeout_s=1)
