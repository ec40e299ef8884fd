"""Our brokers beside Apache Kafka's: `python -m tests.bench kafka` (`make bench-kafka`)."""
