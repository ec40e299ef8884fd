"""The command line of the harness: `jepsen test`, `test-all`, `check`, `report`, `serve`."""
