"""The quorum beside etcd: `python -m tests.bench.quorum.main`."""
