"""How a text is split into tokens, step by step, for display.

    for word in trace_tokens(tokenizer, "lowest").words:
        for step in word.steps: ...        # l o w e s t → lo w e s t → low e s t → low es t → low est

BPE merges two neighbours at a time, in the order of its list of merges. WordPiece takes the longest entry that the rest
of the word begins with. Unigram takes the segmentation with the largest Σ log p. The code is the obvious one; the
library's is faster and gives the same result, so the last step is what `encode` returns.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from typing import Any

from tokenizers.normalizers import Normalizer

from cutaway.errors import InputError
from cutaway.tokens.marks import BYTE, Spelling, description_of, spelling_of
from cutaway.tokens.tokenizer import Tokenizer

LONGEST = 2000  # characters; each step of a merge shows the whole word again
MOST_CUTS = 1024
UNKNOWN_COST = 10.0  # Unigram: an unknown character scores so much less than the worst piece


@dataclass(frozen=True)
class Merge:
    """BPE: the word after `pair`, number `rank` in the list of merges, was merged. In the first step nothing was."""

    pieces: list[str]
    pair: tuple[str, str] | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Match:
    """WordPiece: the entries found so far, each the longest, and what is left of the word."""

    pieces: list[str]
    rest: str


@dataclass(frozen=True)
class Cut:
    """Unigram: one segmentation of the word. `score` is the sum of the pieces' log-probabilities."""

    pieces: list[str]
    scores: list[float]
    score: float


@dataclass(frozen=True)
class Word:
    """How a word becomes tokens: the last step is the result. Unigram's best segmentation comes last."""

    text: str  # as the model gets it, normalised and with its marks
    offsets: tuple[int, int]  # characters [start, stop) of the text
    steps: list[Merge] | list[Match] | list[Cut]

    @property
    def tokens(self) -> list[str]:
        """The tokens of the word."""
        return self.steps[-1].pieces


@dataclass(frozen=True)
class Trace:
    """How a text became tokens."""

    model: str  # BPE, WordPiece, Unigram, WordLevel
    words: list[Word]

    @property
    def tokens(self) -> list[str]:
        """The tokens of the text, as in `encode_full(text, special=False).tokens`."""
        return [token for word in self.words for token in word.tokens]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


Steps = Callable[[list[str], str], tuple[str, list[Any]]]  # (tokens, the text they stand for) → the word, its steps


def trace_tokens(tokenizer: Tokenizer, text: str, n_best: int = 4) -> Trace:
    """Each word of a text with the steps that split it; for Unigram its `n_best` segmentations."""
    return Tracer(tokenizer, n_best).trace(text)


class Tracer:
    """Traces many texts with one tokenizer, whose vocabulary is read once."""

    def __init__(self, tokenizer: Tokenizer, n_best: int = 4) -> None:
        self.tokenizer = tokenizer
        backend = tokenizer.backend
        if getattr(backend.model, "dropout", None):
            raise InputError("with dropout a text is split differently each time: trace the tokenizer without it")
        if not 1 <= n_best <= MOST_CUTS:
            raise InputError(f"n_best={n_best:,} must be 1 … {MOST_CUTS:,}")
        description = description_of(backend)
        self.style = spelling_of(description)
        self.added = set(backend.get_added_tokens_decoder())
        model = description["model"]
        kinds: dict[str, Callable[[], Steps]] = {
            "BPE": lambda: _merging(model, self.style),
            "WordPiece": lambda: _matching(model, backend.normalizer),
            "Unigram": lambda: _likeliest(model, n_best),
            "WordLevel": lambda: lambda tokens, text: (text, [Match(tokens, "")]),
        }
        self.steps = kinds[self.style.model]()

    def trace(self, text: str) -> Trace:
        """Each word of the text with the steps that split it."""
        if len(text) > LONGEST:
            raise InputError(f"a text of {len(text):,} characters is too long to show; at most {LONGEST:,}")
        encoded = self.tokenizer.encoding(text, special=False)
        rows = zip(encoded.word_ids, encoded.ids, encoded.tokens, encoded.offsets, strict=True)
        return Trace(self.style.model, [self._word(text, list(word)) for _, word in groupby(rows, lambda row: row[0])])

    def _word(self, text: str, rows: list[tuple[int | None, int, str, tuple[int, int]]]) -> Word:
        tokens = [token for _, _, token, _ in rows]
        offsets = (rows[0][3][0], rows[-1][3][1])
        if rows[0][1] in self.added:  # found before any word is cut
            return Word(tokens[0], offsets, [Match(tokens, "")])
        word, steps = self.steps(tokens, text[slice(*offsets)])
        return Word(word, offsets, steps)


# --- BPE --------------------------------------------------------------------------------------------------------------


def _merging(model: dict[str, Any], style: Spelling) -> Steps:
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    ranks = {(left, right): rank for rank, (left, right) in enumerate(pairs)}
    whole = set(model["vocab"]) if model.get("ignore_merges") else set()
    opaque = {model["unk_token"]}  # replaces characters that cannot be merged

    def steps(tokens: list[str], text: str) -> tuple[str, list[Merge]]:
        symbols = symbols_of(tokens, style, opaque, bytes_too=model["byte_fallback"])
        word = "".join(symbols)
        if word in whole:
            return word, [Merge([word])]
        return word, list(_merges(symbols, ranks, len(style.prefix)))

    return steps


def symbols_of(tokens: list[str], style: Spelling, opaque: set[str | None], bytes_too: bool) -> list[str]:
    """The characters that the merges began with, from what they ended with."""
    symbols: list[str] = []
    for n, token in enumerate(tokens):
        if token in opaque or (bytes_too and BYTE.fullmatch(token)):
            symbols.append(token)
            continue
        bare = token.removeprefix(style.prefix) if n else token
        symbols.extend(bare.removesuffix(style.suffix) if n == len(tokens) - 1 else bare)
    marked = [symbol if n == 0 or symbol in opaque else style.prefix + symbol for n, symbol in enumerate(symbols)]
    if style.suffix and marked[-1] not in opaque:
        marked[-1] += style.suffix
    return marked


def _merges(pieces: list[str], ranks: dict[tuple[str, str], int], n_prefix: int) -> Iterator[Merge]:
    yield Merge(pieces)
    while True:
        ways = [(ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks]
        if not ways:
            return
        rank, at = min(ways)
        left, right = pieces[at : at + 2]
        pieces = [*pieces[:at], left + right[n_prefix:], *pieces[at + 2 :]]
        yield Merge(pieces, (left, right), rank)


# --- WordPiece --------------------------------------------------------------------------------------------------------


def _matching(model: dict[str, Any], normalizer: Normalizer | None) -> Steps:
    vocab, prefix, unk = set(model["vocab"]), model["continuing_subword_prefix"], model["unk_token"]

    def steps(tokens: list[str], text: str) -> tuple[str, list[Match]]:
        unknown = tokens == [unk]
        word = tokens[0] + "".join(token.removeprefix(prefix) for token in tokens[1:])
        if unknown:
            word = normalizer.normalize_str(text).strip() if normalizer else text
        too_long = len(word) > model["max_input_chars_per_word"]
        found = [Match([], word)] if too_long else list(_matches(word, vocab, prefix))
        return word, [*found, Match([unk], "")] if unknown else found  # a word with one unknown piece is unknown

    return steps


def _matches(word: str, vocab: set[str], prefix: str) -> Iterator[Match]:
    pieces: list[str] = []
    rest = word
    yield Match(pieces, rest)
    while rest:
        mark = prefix if pieces else ""
        stop = next((stop for stop in range(len(rest), 0, -1) if mark + rest[:stop] in vocab), 0)
        if not stop:
            return
        pieces, rest = [*pieces, mark + rest[:stop]], rest[stop:]
        yield Match(pieces, rest)


# --- Unigram ----------------------------------------------------------------------------------------------------------


def _likeliest(model: dict[str, Any], n_best: int) -> Steps:
    scores: dict[str, float] = dict(model["vocab"])
    unknown = min(scores.values()) - UNKNOWN_COST

    def steps(tokens: list[str], text: str) -> tuple[str, list[Cut]]:
        word = _without_bytes(tokens) if model["byte_fallback"] else "".join(tokens)
        cuts = []
        for score, pieces in best_cuts(word, scores, unknown, n_best):
            shown = list(_as_encoded(pieces, scores, unknown, bytes_too=model["byte_fallback"]))
            cuts.append(Cut([piece for piece, _ in shown], [part for _, part in shown], score))
        return word, cuts[::-1]

    return steps


def best_cuts(word: str, scores: dict[str, float], unknown: float, n_best: int) -> list[tuple[float, list[str]]]:
    """The segmentations with the largest sums of scores, the best first: Viterbi's algorithm, keeping several.

    A character that is not a piece may be one by itself, with the score `unknown`.
    """
    ways: list[list[tuple[float, list[str]]]] = [[(0.0, [])], *([] for _ in word)]
    longest = max(map(len, scores))
    for start in range(len(word)):
        ways[start] = sorted(ways[start], key=lambda way: -way[0])[:n_best]  # stable: the first found wins, as there
        for stop in range(start + 1, min(len(word), start + longest) + 1):
            piece = word[start:stop]
            score = scores.get(piece, unknown if stop == start + 1 else None)
            if score is not None:
                ways[stop] += [(so_far + score, [*pieces, piece]) for so_far, pieces in ways[start]]
    return sorted(ways[-1], key=lambda way: -way[0])[:n_best]


def _as_encoded(
    pieces: list[str], scores: dict[str, float], unknown: float, bytes_too: bool
) -> Iterator[tuple[str, float]]:
    """The pieces with their scores. Unknown neighbours become one, or bytes where the vocabulary has those."""
    for known, group in groupby(pieces, lambda piece: piece in scores):
        run = list(group)
        if known:
            yield from ((piece, scores[piece]) for piece in run)
            continue
        shown = [f"<0x{byte:02X}>" for byte in "".join(run).encode()] if bytes_too else []
        if not shown or any(byte not in scores for byte in shown):
            shown = ["".join(run)]
        yield from ((piece, unknown * len(run) / len(shown)) for piece in shown)


def _without_bytes(tokens: list[str]) -> str:
    """The word, with its byte tokens decoded to characters."""
    found = ((BYTE.fullmatch(token), token) for token in tokens)
    return b"".join(bytes([int(byte[1], 16)]) if byte else token.encode() for byte, token in found).decode()
