"""Messages of Kafka's protocol that kafka-python has no class for, in Kafka's own notation."""
