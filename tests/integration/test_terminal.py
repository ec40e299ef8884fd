"""The demo as a person sees it: on a terminal, with one line of progress."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest


@pytest.mark.req("A2")
def test_the_demo_writes_over_its_progress_on_a_terminal_and_ends_well() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        demo = subprocess.Popen(
            [sys.executable, "-m", "raftctl", "demo"],
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
        assert demo.wait(90) == 0, shown.decode(errors="replace")
    assert b"\r\x1b[K" in shown
    assert shown.rstrip().endswith(b"valid: lost 0, duplicated 0, out of order 0")
