"""The console in real browsers: on a double of the server, and on real clusters."""
