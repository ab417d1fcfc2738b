"""Experiments that use all of the other rooms."""
