"""Markov chains as the lecture builds them: first and second order, skips, masks, and the step to attention."""
