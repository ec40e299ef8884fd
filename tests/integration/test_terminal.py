"""The demo as a person sees it: on a terminal, with a progress bar."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest


@pytest.mark.req("A2")
def test_the_demo_draws_a_bar_on_a_terminal_and_ends_well() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        demo = subprocess.Popen(
            [sys.executable, "-m", "raftctl", "demo", "--lines", "3000"],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                some = screen.read(65536)
            except OSError:  # Linux says EIO when the last writer has closed the terminal.
                break
            if not some:
                break
            shown += some
        assert demo.wait(60) == 0, shown.decode(errors="replace")
    assert "━".encode() in shown
    assert shown.rstrip().endswith(b"lost 0, duplicated 0, out of order 0")
