"""n-gram models: counts, smoothing, classes of words, mixtures, and the files in which they are published."""
