"""Training: a loop that reads like the lecture, and never loses work.

for step in range(state.step, recipe.train.steps):
    loss = take_step(state, batches(step))
"""
