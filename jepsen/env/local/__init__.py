"""The environment `local`: real node processes on this machine, started by raftctl."""
