"""Data: files → examples → batches.

Texts, tables and images are read once, strictly, and cached as memory-mapped arrays, keyed by their content. Nothing
here imports torch.
"""
