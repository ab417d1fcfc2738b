"""A SentencePiece BPE tokenizer as GGUF files hold it."""

from cutaway.tokens import Tokenizer, gguf_tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁", "a", "b", "n", "e", "▁a", "ab", "an", "na", "ana", "ban", "▁b", "▁▁", "aa", "aaa", "▁an", "anan", "é"]
SCORES = {word: -float(n) for n, word in enumerate(WORDS[7:] + WORDS[:7])}
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *WORDS]


def from_gguf(**changes: object) -> Tokenizer:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": [SCORES.get(token, 0.0) for token in TOKENS],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(WORDS)],
    }
    return gguf_tokenizer(metadata | {f"tokenizer.ggml.{key}": value for key, value in changes.items()})
