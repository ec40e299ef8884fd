"""What metrics cost: the time of a scrape, and of counting on hot paths (row O1)."""
