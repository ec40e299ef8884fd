"""The command line of the harness: `jepsen test`, `check`, `report`, `serve`."""
