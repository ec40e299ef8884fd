"""Messages of Kafka's protocol that kafka-python has no class for.

They are JSON files in Kafka's own notation. kafka-python loads them by the name of this package,
so it holds nothing else.
"""
