"""Tokenizers and texts that are traced."""

import tokenizers
from helpers.varied_texts import FRAGMENTS
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from cutaway.tokens import Tokenizer

TEXTS = st.lists(
    st.one_of(st.text(max_size=8), st.sampled_from([*FRAGMENTS, "<eos>", "[MASK]", " ", "unhappily", "x" * 120])),
    max_size=5,
).map("".join)


def with_merges(**options: object) -> Tokenizer:
    """A BPE over words as other projects have them: with a prefix or a suffix, with <unk>, taking whole words."""
    marks = {
        name: value for name, value in options.items() if name in ("continuing_subword_prefix", "end_of_word_suffix")
    }
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", **options))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>"], limit_alphabet=60, show_progress=False, **marks
    )
    backend.train_from_iterator(FRAGMENTS, trainer)
    return Tokenizer(backend)


def with_bytes() -> Tokenizer:
    """A Unigram whose unknown characters fall back to bytes."""
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("▁the", -2.5), ("▁fox", -4.0), *((c, -5.0) for c in "abcdefghijklm")]
    vocab = [*pieces, *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    backend = tokenizers.Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(backend)


OTHERS = {
    "suffix": lambda: with_merges(end_of_word_suffix="</w>"),
    "prefix": lambda: with_merges(continuing_subword_prefix="@@"),
    "fused": lambda: with_merges(fuse_unk=True),
    "whole": lambda: with_merges(ignore_merges=True),
    "bytes": with_bytes,
}
