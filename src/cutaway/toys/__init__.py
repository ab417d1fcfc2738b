"""Small models that are trained in a minute, to show what a Transformer learns."""
