"""Shannon's experiment: the guessing game, who plays it, and the bounds of entropy that it gives."""
