"""Raw requests that are put to Apache Kafka and to us, and their answers field by field.

`language` says what a request of the table is, `table` holds them by family of APIs, `playing` asks
one system, `answers` takes out of an answer what may differ, `comparing` finds what does, and
`listed` knows which differences stand and why. `python -m tests.peers.differential` runs it all.
"""
