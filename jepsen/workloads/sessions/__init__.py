"""What a process of a test has of Kafka: one producer, one consumer, by one library or another."""
