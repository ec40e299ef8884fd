"""Planted bugs, and the properties that catch each of them: `python -m tests.mutants`."""
