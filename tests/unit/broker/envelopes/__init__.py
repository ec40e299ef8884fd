"""Requests that a node makes of brokers for somebody else."""
