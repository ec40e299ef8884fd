"""The command `raftctl start`."""

from raftctl.cli._node_process import run_start
from raftctl.cli._options import ConfigOption, OverrideOption


def start(config: ConfigOption, override: OverrideOption = None) -> None:
    """Runs one node in the foreground. SIGTERM or Ctrl-C ends it.

    The node writes its log to stderr. Exit status 2 for a bad file or directory.
    """
    run_start(config, override or ())
