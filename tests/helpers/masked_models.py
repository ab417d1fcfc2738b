"""Masked language models with a WordPiece tokenizer."""

from helpers.bert_tokenizer import bert_tokenizer
from helpers.tiny_models import tiny
from tokenizers import AddedToken

from cutaway.tokens import Tokenizer

WORDS = "[UNK] a man sleeps he is awake the dog ##s runs no one saw it barked .".split()


def wordpiece(mask: str = "[MASK]", **more: bool) -> Tokenizer:
    return bert_tokenizer(WORDS, AddedToken(mask, **more))


def masked(name: str = "bert", **changes):
    return tiny(name, **{"task": "masked_language_model", "seed": 3, **changes})
