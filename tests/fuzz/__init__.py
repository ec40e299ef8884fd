"""Random frames against a broker in the same process: `make fuzz`."""
