"""The controller at millions of partitions."""
