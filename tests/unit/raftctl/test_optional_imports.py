"""What a library finds missing, and what it keeps."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from raftctl.optional_imports import without


def test_a_package_is_missing_meanwhile_and_there_afterwards() -> None:
    with without("this"), pytest.raises(ModuleNotFoundError, match="this is not wanted here"):
        importlib.import_module("this")
    assert importlib.util.find_spec("this") is not None


def test_what_is_loaded_already_stays() -> None:
    with without("json"):
        assert importlib.import_module("json") is sys.modules["json"]


BROKER = """
import sys
from raftctl.cli._node_process import preload
preload()
import broker.plugin
print({'hypothesis', 'rich'} & set(sys.modules))
"""


def test_a_broker_loads_no_package_for_tests_or_terminals() -> None:
    command = [sys.executable, "-c", BROKER]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"
