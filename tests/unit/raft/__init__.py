"""The quorum core, event by event."""
