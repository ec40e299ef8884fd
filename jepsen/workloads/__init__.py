"""What a test does to a cluster: operations, how clients do them, and how they are judged."""
