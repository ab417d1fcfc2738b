"""The tokenizer inside a GGUF file, from its metadata (`tokenizer.ggml.…`)."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from cutaway.errors import CheckpointError
from cutaway.files import naming
from cutaway.tokens.library_errors import damaged_tokenizer
from cutaway.tokens.pipeline import byte_level, split_merges, surround, with_special
from cutaway.tokens.sentencepiece_bpe import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Piece, pieces_bpe, texts
from cutaway.tokens.tokenizer import Tokenizer

# How a text is split into words before BPE, by the name in `tokenizer.ggml.pre`.
AS_GPT2 = ("gpt-2", "mpt", "olmo", "jais")
SINGLE_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
AS_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
AS_QWEN2 = ("qwen2",)
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gguf_tokenizer(metadata: Mapping[str, Any], where: str = "the GGUF file") -> Tokenizer:
    """Build the tokenizer that the metadata of a GGUF file describes."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise CheckpointError(f"{where} has a tokenizer of kind {kind!r}; supported are 'gpt2' and 'llama'")
    pieces = _pieces(metadata, where)
    roles = _roles(metadata, pieces, where)
    add_bos = bool(
        metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or _pre_tokenizer_name(metadata) in AS_LLAMA3)
    )
    add_eos = bool(metadata.get("tokenizer.ggml.add_eos_token", False))
    if (add_bos and "bos" not in roles) or (add_eos and "eos" not in roles):
        raise CheckpointError(f"{where} adds a token to every text, but does not say which")
    if kind == "llama":
        space_before = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        tokenizer = pieces_bpe(pieces, roles, where, add_bos, add_eos, space_before)
    else:
        tokenizer = _byte_bpe(metadata, pieces, _merges(metadata, where), roles, where, (add_bos, add_eos))
    template = metadata.get("tokenizer.chat_template")
    tokenizer.chat_template = template if isinstance(template, str) else None
    return tokenizer


def _merges(metadata: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges):
        raise CheckpointError(f"{where} has no list of merges (tokenizer.ggml.merges)")
    return split_merges(merges, where)


def _byte_bpe(
    metadata: Mapping[str, Any],
    pieces: list[Piece],
    merges: list[tuple[str, str]],
    roles: dict[str, str],
    where: str,
    add: tuple[bool, bool],
) -> Tokenizer:
    vocab = {piece.text: id for id, piece in enumerate(pieces)}
    if len(vocab) < len(pieces):
        raise CheckpointError(f"{where} has a token twice")
    name = _pre_tokenizer_name(metadata)
    with naming(where), damaged_tokenizer(where):
        # Llama 3 keeps a word that is a token, even where the merges would not produce it.
        backend = byte_level(models.BPE(vocab, merges, ignore_merges=name in AS_LLAMA3), _pre_tokenizer(name, where))
        if name in AS_QWEN2:
            backend.normalizer = normalizers.NFC()
        surround(backend, roles["bos"] if add[0] else None, roles["eos"] if add[1] else None)
        return with_special(backend, texts(pieces, UNKNOWN, CONTROL), roles, texts(pieces, USER_DEFINED))


def _pre_tokenizer_name(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("tokenizer.ggml.pre", "gpt-2"))  # files older than the key split as GPT-2


def _pre_tokenizer(name: str, where: str) -> PreTokenizer:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in AS_GPT2:
        return gpt2
    if name in SINGLE_DIGITS:  # each digit is a word of its own, so that numbers are read digit by digit
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if name in AS_LLAMA3 + AS_QWEN2:
        words = Regex(WORDS.replace("DIGITS", "3" if name in AS_LLAMA3 else "1"))
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Split(words, "isolated"), plain])
    known = ", ".join(AS_GPT2 + SINGLE_DIGITS + AS_LLAMA3 + AS_QWEN2)
    raise CheckpointError(f"{where} splits words as {name!r} (tokenizer.ggml.pre); supported are {known}")


def _pieces(metadata: Mapping[str, Any], where: str) -> list[Piece]:
    """Tokens with their kinds and, where there are any, their scores."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise CheckpointError(f"{where} has no list of tokens (tokenizer.ggml.tokens)")
    kinds = metadata.get("tokenizer.ggml.token_type", [NORMAL] * len(tokens))
    scores = metadata.get("tokenizer.ggml.scores", [0.0] * len(tokens))
    for name, values in (("token_type", kinds), ("scores", scores)):
        if not isinstance(values, list) or len(values) != len(tokens):
            raise CheckpointError(f"{where}: tokenizer.ggml.{name} does not have one value for each of the tokens")
        if not all(isinstance(value, int | float) for value in values):
            raise CheckpointError(f"{where}: tokenizer.ggml.{name} holds something other than numbers")
    return [Piece(*entry) for entry in zip(tokens, scores, kinds, strict=True)]


def _roles(metadata: Mapping[str, Any], pieces: list[Piece], where: str) -> dict[str, str]:
    """The special tokens, which the metadata gives by id; in SentencePiece they are 0, 1 and 2 unless it says else."""
    usual = {"unk": 0, "bos": 1, "eos": 2} if metadata.get("tokenizer.ggml.model") == "llama" else {}
    names = {"unk": "unknown", "bos": "bos", "eos": "eos", "pad": "padding", "cls": "cls", "sep": "seperator"}
    names["mask"] = "mask"
    roles = {}
    for role, name in names.items():
        id = metadata.get(f"tokenizer.ggml.{name}_token_id", usual.get(role))
        if id is None:
            continue
        if not isinstance(id, int) or not 0 <= id < len(pieces):
            raise CheckpointError(
                f"{where}: tokenizer.ggml.{name}_token_id is {id}, outside its {len(pieces):,} tokens"
            )
        roles[role] = pieces[id].text
    return roles
