"""What may come next: from scores of the next token to a text."""

from cutaway.decoding.beam import beam_search, beam_translate
from cutaway.decoding.greedy import greedy, greedy_translate
from cutaway.decoding.translate import translate_all

__all__ = ["beam_search", "beam_translate", "greedy", "greedy_translate", "translate_all"]
