"""Commands that ask brokers over Kafka's protocol.

They use librdkafka's administrator, and kafka-python's for requests that librdkafka lacks. They
know nothing of raftctl's own controllers, so they administer any Kafka cluster. Errors keep the
names of Kafka's error codes, followed by a sentence with the remedy. `client_security` has what
`--command-config` asks for, for each library; commands of clients use it as well.
"""
