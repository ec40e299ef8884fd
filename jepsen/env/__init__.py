"""Environments in which a cluster runs while it is tested."""
