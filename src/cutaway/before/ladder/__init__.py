"""The ladder of `cutaway compare`: n-grams, classes, an LSTM and a Transformer on one text and one axis."""
