"""What can go wrong in the harness itself."""

from __future__ import annotations


class InputError(Exception):
    """Error of the user's input; the message names the option and the remedy."""


class ClusterError(Exception):
    """The cluster of a test cannot be had; the message says why and where to look."""
