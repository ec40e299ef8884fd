"""Commands that produce and consume records.

`console` is for people, the verifiable clients are for tests that count acknowledgements, and
`bench` measures. All use librdkafka and take its settings by `--property`. A client that is
interrupted first delivers what it has taken, then exits.
"""
