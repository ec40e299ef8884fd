"""What a run looks like: one self-contained HTML page, from its specification, verdict, history."""
