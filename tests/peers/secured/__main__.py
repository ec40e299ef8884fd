"""A library of Python: plays the cases of stdin at the same time, and prints their outcomes.

A process of its own, since libraries leave sockets behind when they are refused.
Usage: python -m tests.peers.secured MODULE
"""

from __future__ import annotations

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import import_module

from tests.peers.secured.cases import Case

AT_ONCE = 16


def main(module: str) -> None:
    """Play the cases."""
    # Their logs are read, not shown.
    logging.lastResort = None
    play = import_module(f"tests.peers.secured.{module}").play
    some = [Case.read(document) for document in json.load(sys.stdin)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = [asdict(outcome) for outcome in pool.map(play, some)]
    json.dump(outcomes, sys.stdout)


main(*sys.argv[1:])
