"""Tokens: text → ids and back. The first room of the lecture.

A vocabulary has N entries; a token is an index 0 … N−1. The `tokenizers` library splits the text; this room gives it
one interface (`Tokenizer`), finds the roles of special tokens, reads published tokenizers, trains new ones, and shows
step by step how a text is split. It does not import torch.
"""

from cutaway.tokens.gguf import gguf_tokenizer
from cutaway.tokens.readers import find_tokenizer
from cutaway.tokens.sentencepiece_bpe import llama2c_tokenizer
from cutaway.tokens.tokenizer import Encoded, Tokenizer
from cutaway.tokens.trace import Trace, trace_tokens
from cutaway.tokens.train_tokenizer import train_tokenizer

__all__ = [
    "Encoded",
    "Tokenizer",
    "Trace",
    "find_tokenizer",
    "gguf_tokenizer",
    "llama2c_tokenizer",
    "trace_tokens",
    "train_tokenizer",
]
