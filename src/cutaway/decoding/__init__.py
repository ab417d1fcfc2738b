"""What may come next: from scores of the next token to a text."""

from cutaway.decoding.greedy import greedy, greedy_translate

__all__ = ["greedy", "greedy_translate"]
