"""The presets of `cutaway circuit`: a task each, the heads that do it, and how much of it they keep."""
