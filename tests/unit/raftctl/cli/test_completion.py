"""A shell completes commands and options, by the script that `raftctl` prints for it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from raftctl.cli._arguments import COMPLETION_VARIABLE
from raftctl.cli.main import run


@pytest.mark.req("A1")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_raftctl(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMPLETION_VARIABLE, "")
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{COMPLETION_VARIABLE}=complete_{shell}" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.req("A1")
def test_bash_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def completed(words: str, at: int) -> list[str]:
        monkeypatch.setenv(COMPLETION_VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(at))
        assert run([]) == 0
        return sorted(capsys.readouterr().out.split())

    assert completed("raftctl quo", 1) == ["quorum", "quotas"]
    assert {"alter", "create", "list"} < set(completed("raftctl topics ", 2))
    assert completed("raftctl topics create --replication", 3) == ["--replication-factor"]
