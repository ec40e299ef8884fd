"""Other projects' own test suites, too long for every run: `make test-suites`."""
