"""`raftctl demo`: a cluster under load and faults, and a ledger of every record.

The demo makes a cluster in a temporary directory, produces and consumes, kills and pauses
nodes, and reports what was acknowledged, read, lost or read twice. It ends every process it has
started, also when it is interrupted; a later demo removes what a killed one has left behind.
"""
