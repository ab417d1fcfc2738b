"""Tokens: text → ids and back. The first room of the lecture.

A vocabulary has N entries; a token is an index 0 … N−1. The `tokenizers` library splits the text; this room gives it
one interface (`Tokenizer`), finds the roles of special tokens, reads published tokenizers, trains new ones, and shows
step by step how a text is split. It does not import torch.
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.tokens.gguf import gguf_tokenizer as gguf_tokenizer
    from cutaway.tokens.sentencepiece_bpe import llama2c_tokenizer as llama2c_tokenizer
    from cutaway.tokens.tokenizer import Encoded as Encoded
    from cutaway.tokens.tokenizer import Tokenizer as Tokenizer
    from cutaway.tokens.tokenizer import find_tokenizer as find_tokenizer
    from cutaway.tokens.tokenizer_training import train_tokenizer as train_tokenizer
    from cutaway.tokens.trace import Trace as Trace
    from cutaway.tokens.trace import trace_tokens as trace_tokens

__getattr__, __dir__ = lazy_names(__name__)
