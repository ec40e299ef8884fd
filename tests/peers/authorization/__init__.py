"""The truth table of authorization: what each request needs, by the answers of two systems.

`documented` is Apache Kafka's own table of operations and resources. `table` has a request for each
of its rows, and for what brokers check besides. `cases` are the rules that a principal may have.
A cell is a row in a case: a request of a principal of its own, by whose answer `verdicts` reads
whether it was allowed. `playing` fills the cells of one system, `recorded` keeps them in a file, of
which `page` makes docs/reference/acls.md. `python -m tests.peers.authorization` runs it all.
"""
