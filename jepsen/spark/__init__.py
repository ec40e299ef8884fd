"""The checkers over histories too large for one process; only this package knows Spark."""
