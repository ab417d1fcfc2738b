"""Circuits: the few heads and feed-forwards that do a task, found, measured and saved."""
