"""What security costs: `python -m tests.bench.security.main`."""
