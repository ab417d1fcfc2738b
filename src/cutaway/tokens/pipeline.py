"""The parts that all readers of tokenizers share: byte-level BPE, WordPiece, special tokens, and templates."""

from collections.abc import Iterable, Mapping

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from cutaway.errors import CheckpointError
from cutaway.tokens.tokenizer import Tokenizer


def byte_level(model: models.BPE, split: PreTokenizer | None = None) -> Backend:
    """BPE over the bytes of a text, written as 256 visible characters (a space is Ġ): nothing is ever unknown.

    `split` splits the text into words first; None splits as GPT-2 does.
    """
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if split is None else split
    backend.decoder = decoders.ByteLevel()
    return backend


def wordpiece(vocab: dict[str, int], normalizer: Normalizer, *, unk: str, cls: str, sep: str) -> Backend:
    """BERT's: the longest entry that a word begins with, then of the rest; [CLS] … [SEP] around the text."""
    backend = Backend(models.WordPiece(vocab, unk_token=unk))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    return backend


def with_special(
    backend: Backend, special: Iterable[str | AddedToken], roles: Mapping[str, str], whole: Iterable[str] = ()
) -> Tokenizer:
    """Adds the special tokens, which are never split and not decoded, and the `whole` ones, which are never split."""
    tokens = [token if isinstance(token, AddedToken) else AddedToken(token, normalized=False) for token in special]
    backend.add_tokens([AddedToken(token, normalized=False) for token in whole])
    backend.add_special_tokens(tokens)
    return Tokenizer(backend, roles)


def surround(backend: Backend, bos: str | None, eos: str | None) -> None:
    """Adds `bos` before and `eos` behind every text, also around each text of a pair."""
    wanted = [token for token in dict.fromkeys((bos, eos)) if token is not None]
    if not wanted:
        return
    first = [bos, "$A", eos]
    second = [f"{bos}:1" if bos else None, "$B:1", f"{eos}:1" if eos else None]
    backend.post_processor = processors.TemplateProcessing(
        single=[part for part in first if part],
        pair=[part for part in first + second if part],
        special_tokens=[(token, backend.token_to_id(token)) for token in wanted],
    )


def split_merges(lines: Iterable[str], where: str) -> list[tuple[str, str]]:
    """Parses merges as files write them: two tokens separated by a space."""
    merges = []
    for line in lines:
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise CheckpointError(f"{where} has the merge {line!r}, which is not two tokens separated by a space")
        merges.append((left, right))
    return merges
