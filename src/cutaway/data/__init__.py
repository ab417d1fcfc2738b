"""Data: files → examples → batches.

Texts, tables and images are read once, strictly, and lie as memory-mapped arrays in a cache keyed by their content.
This room does not know torch.
"""
