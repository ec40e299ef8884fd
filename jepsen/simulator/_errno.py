"""Errors of the simulated operating systems."""

from __future__ import annotations

import os


def os_error(number: int, what: str = "") -> OSError:
    """Return the `OSError` subclass of an errno, with the usual text."""
    text = os.strerror(number)
    return OSError(number, f"{text}: {what}" if what else text)
