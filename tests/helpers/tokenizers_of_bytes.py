"""Tokenizers of bytes and words."""

import tokenizers
from helpers.varied_texts import FRAGMENTS
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from cutaway.tokens import Tokenizer


def byte_level() -> Tokenizer:
    """A small byte-level BPE with the lecture's special tokens."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<sos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(FRAGMENTS, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<sos> $A <eos>", pair="<sos> $A <eos> $B:1 <eos>:1", special_tokens=[("<sos>", 1), ("<eos>", 2)]
    )
    return Tokenizer(backend)


def words(*special: str, unk: str = "<unk>") -> tokenizers.Tokenizer:
    vocab = {word: id for id, word in enumerate([unk, "I", "ate", "an", "apple"])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=unk))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens([AddedToken(token) for token in special])
    return backend
