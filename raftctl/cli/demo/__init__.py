"""`raftctl demo`: writes a text into a local cluster while breaking it, reads it back.

`source` gives lines, `clients` writes and reads them over the Kafka protocol, `faults` kills and
restarts nodes, `ledger` compares (pure), `report` words the result, `run` puts them together.
"""
