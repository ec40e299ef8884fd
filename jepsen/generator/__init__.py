"""What clients and nemesis do, as immutable values: see `jepsen.generator.core`."""
