"""The seam: the only way to disk, wall clock, randomness, threads and logs (see `api`)."""
