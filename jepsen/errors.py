"""What can go wrong in the harness itself."""

from __future__ import annotations


class InputError(Exception):
    """What was asked for cannot be done; the message names the option and the remedy."""
