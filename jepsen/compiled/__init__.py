"""Inner loops over arrays of integers, compiled by numba; whoever lacks it does without them.

The modules here know arrays alone and import nothing of the harness; who uses one asks `available`
first and imports it then. They only say what is certain: what they leave open, and every
explanation, is for the searches in Python.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def available() -> bool:
    """Whether numba is installed: the extra `fast`, which `spark` includes."""
    return find_spec("numba") is not None
