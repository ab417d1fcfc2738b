"""Patching: what happens to an answer when a value is taken away, or comes from another run."""
