"""Runs `raftctl` against a broker in the same process."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from raftctl.cli.main import run

if TYPE_CHECKING:
    import pytest

    from tests.unit.broker.apis.controlled import ControlledBroker


class CommandLine:
    """`raftctl` in another thread, so that the broker can answer."""

    def __init__(self, capsys: pytest.CaptureFixture[str], broker: ControlledBroker) -> None:
        self._capsys = capsys
        self._broker = broker

    async def status(self, *arguments: str) -> tuple[int, str, str]:
        """(exit status, stdout, stderr)"""
        address = ("--bootstrap-server", self._broker.address)
        self._capsys.readouterr()
        status = await asyncio.to_thread(run, [*arguments, *address])
        told = self._capsys.readouterr()
        return status, told.out, told.err

    async def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints."""
        status, out, err = await self.status(*arguments, "--output", "json")
        assert status == 0, err
        return json.loads(out)
