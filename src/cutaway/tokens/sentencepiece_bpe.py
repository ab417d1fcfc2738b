"""SentencePiece's BPE, as Llama and llama2.c use it: pieces with scores instead of a list of merges.

Spaces become ▁, and one is added before the text. Then the two neighbours that together are the piece with the best
score are merged, again and again. A character that is not a piece falls back to its bytes, `<0xE2>` …, so nothing is
unknown.

The library merges by an ordered list of pairs. So every way of splitting a piece into two pieces becomes a pair, the
pairs of better pieces first.
"""

import struct
from dataclasses import dataclass

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers

from cutaway.errors import CheckpointError
from cutaway.files import naming
from cutaway.tokens.library_errors import damaged_tokenizer
from cutaway.tokens.marks import SPACE
from cutaway.tokens.pipeline import surround, with_special
from cutaway.tokens.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # as SentencePiece and GGUF number the kinds


@dataclass(frozen=True)
class Piece:
    """One entry of a vocabulary."""

    text: str
    score: float
    kind: int = NORMAL


def texts(pieces: list[Piece], *kinds: int) -> list[str]:
    """The texts of the pieces of these kinds."""
    return [piece.text for piece in pieces if piece.kind in kinds]


def pieces_bpe(
    pieces: list[Piece],
    roles: dict[str, str],
    where: str,
    bos: bool = True,
    eos: bool = False,
    space_before: bool = True,
) -> Tokenizer:
    """A tokenizer from pieces; `bos` and `eos` say what surrounds every text, `where` names the file in errors."""
    vocab = {piece.text: id for id, piece in enumerate(pieces)}
    if len(vocab) < len(pieces):
        raise CheckpointError(f"{where} has a piece twice")
    missing = [token for token in roles.values() if token not in vocab]
    if missing:
        raise CheckpointError(f"{where} lacks {', '.join(missing)}")
    with naming(where), damaged_tokenizer(where):
        model = models.BPE(vocab, _merges(pieces), unk_token=roles["unk"], fuse_unk=True, byte_fallback=True)
        backend = Backend(model)
        spaces = normalizers.Replace(" ", SPACE)
        # Always, also before a space: the library's Metaspace would leave that case out.
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if space_before else spaces
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if space_before else steps)
        surround(backend, roles["bos"] if bos else None, roles["eos"] if eos else None)
        return with_special(backend, texts(pieces, UNKNOWN, CONTROL), roles, texts(pieces, USER_DEFINED))


def _merges(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, the best first; bytes and special tokens are never merged."""
    usable = set(texts(pieces, NORMAL))
    merges = []
    for piece in sorted((piece for piece in pieces if piece.kind == NORMAL), key=lambda piece: -piece.score):
        for cut in range(1, len(piece.text)):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in usable and right in usable:
                merges.append((left, right))
    return merges


def llama2c_tokenizer(data: bytes, vocab_size: int, where: str = "the llama2.c tokenizer") -> Tokenizer:
    """The tokenizer of a llama2.c model: the longest length, then score, length and bytes of each piece.

    Ids 3 … 258 are the bytes; older files hold the byte itself, newer ones `<0x0A>`."""
    pieces, at = [], 4
    for id in range(vocab_size):
        if at + 8 > len(data):
            raise CheckpointError(f"{where} ends at piece {id:,} of {vocab_size:,}")
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= len(data) - at:
            raise CheckpointError(f"{where}: piece {id:,} claims to have {length:,} bytes")
        pieces.append(_llama2c_piece(id, data[at : at + length], score, where))
        at += length
    if at != len(data):
        raise CheckpointError(f"{where} has {len(data) - at:,} bytes behind its last piece")
    return pieces_bpe(pieces, {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, where)


def _llama2c_piece(id: int, text: bytes, score: float, where: str) -> Piece:
    if id < 3:
        return Piece(("<unk>", "<s>", "</s>")[id], 0.0, UNKNOWN if id == 0 else CONTROL)
    if id < 259:
        return Piece(f"<0x{id - 3:02X}>", 0.0, BYTE)
    try:
        return Piece(text.decode("utf-8").replace(" ", SPACE), score)
    except UnicodeDecodeError:
        raise CheckpointError(f"{where}: piece {id:,} is not UTF-8") from None
