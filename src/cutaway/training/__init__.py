"""Training: a loop that reads like the lecture, and never loses work.

    cutaway.train("recipes/shakespeare.toml", "build/shakespeare")

`loop` is the step, `train` the run, `recipe` what it depends on, `checkpoint` its checkpoints.
"""
