"""The residual stream: who wrote what into it, and what a model would say if it stopped after a layer."""
