"""Measures raftctl beside its peers: `raftctl bench` and `make bench` show the figures."""
