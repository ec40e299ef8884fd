"""Groups and transactions beside Apache Kafka: `python -m tests.bench groups`."""
