"""What happens in there: what a model is made of and costs, and what goes through it while it works."""
