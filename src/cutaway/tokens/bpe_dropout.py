"""Reproducible BPE-dropout (Provilkov 2020): texts are split in several ways ("cuts"), each a function of a seed.

    ids, lengths = BPEDropout(tokenizer, 0.1, cuts=3, seed=0).cut(["unrelated"])  # un related · unr elated · unrelated

In every step each possible merge is dropped with probability p, and the first of the remaining ones in the list is
done; when none remains, the word is finished. (The library's version takes one more step where a merge that has become
impossible is not dropped, so it drops a little less, and it cannot be seeded.)

Two things make it fast. At most `DRAWS` cuts of a word are drawn, and each occurrence of the word takes one of them, so
a frequent word is not split anew each time. And words of the same length lose one symbol in every step, so they are
merged side by side, as columns of a matrix.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import InputError
from cutaway.tokens.keyed_random import Bits, mixed_bits
from cutaway.tokens.library_errors import input_errors
from cutaway.tokens.marks import description_of, spelling_of
from cutaway.tokens.tokenizer import Tokenizer
from cutaway.tokens.trace import symbols_of

DRAWS = 64  # cuts of a word; more only where a text is cut more often
LONGEST = 1000  # symbols: a longer word, such as a page without a space, stays as it is
AT_ONCE = 1 << 21  # symbols that are merged side by side

PLACE = 10  # bits: a way to merge is a number, the rank of its merge and then its place
NO_MERGE = 1 << 40  # a rank that no merge has
NO_WAY = NO_MERGE << PLACE

Ids = NDArray[np.int32]
Numbers = NDArray[np.int64]


class BPEDropout:
    """Splits every text in `cuts` ways, each a function of the seed, the text, its number and the number of the cut."""

    def __init__(self, tokenizer: Tokenizer, dropout: float, cuts: int, seed: int = 0) -> None:
        description = description_of(tokenizer.with_dropout(dropout).backend)  # refuses what is not BPE
        model: dict[str, Any] = description["model"]
        if not model["merges"]:
            raise InputError("this BPE has no merges to drop: it splits texts into single characters")
        if cuts < 1:
            raise InputError(f"cuts={cuts} must be 1 or more")
        self.tokenizer, self.cuts, self.draws, self.seed = tokenizer, cuts, max(cuts, DRAWS), seed
        self.merges = Merges(model, dropout)
        self.vocab: Mapping[str, int] = model["vocab"]
        self.style, self.opaque, self.bytes_too = spelling_of(description), {model["unk_token"]}, model["byte_fallback"]
        self.looked_up = bool(model.get("ignore_merges")) and not dropout  # whole words; dropout is for merges
        self.added = set(tokenizer.backend.get_added_tokens_decoder())
        self.numbers: dict[tuple[int, ...], int] = {}  # a word, as `encode` cuts it → its number
        self.symbols: list[list[int]] = []  # what a word's merges begin with
        self.keys: list[int] = []
        self.drawn = np.zeros(0, np.int32)  # for each word and draw: which of the cuts in `ids`; −1: none yet
        self.starts, self.ids = np.zeros(1, np.int64), np.zeros(0, np.int32)

    def cut(self, texts: Sequence[str], first: int = 0) -> tuple[Ids, Numbers]:
        """The ids of all cuts of the first text, without special tokens, then of the next …; and the length of each.

        `first` is the number of the first text: a text that comes twice is split differently the second time.
        """
        words, n_words = self._words(texts)
        n_places = np.repeat(n_words, self.cuts)  # of every cut of every text
        place = ranges_of(np.repeat(np.cumsum(n_words) - n_words, self.cuts), n_places)
        cut = np.repeat(np.tile(np.arange(self.cuts), len(texts)), n_places)
        text = np.repeat(np.arange(len(texts), dtype=np.uint64) + np.uint64(first), n_words)
        within = ranges_of(np.zeros_like(n_words), n_words).astype(np.uint64)
        turn = mixed_bits(mixed_bits(text + np.uint64(_key(self.seed))) + within) % np.uint64(self.draws)
        draw = (turn.astype(np.int64)[place] + cut) % self.draws  # in every cut of a text another
        chosen = words[place] * self.draws + draw
        self._draw(np.unique(chosen[self.drawn[chosen] < 0]))
        which = self.drawn[chosen]
        lengths = self.starts[which + 1] - self.starts[which]
        ends = np.append(0, np.cumsum(lengths))[np.cumsum(n_places)]
        return self.ids[ranges_of(self.starts[which], lengths)], np.diff(ends, prepend=0)

    def _words(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """The numbers of all words, text after text, and how many each text has."""
        with input_errors(self.tokenizer.file):
            encodings = self.tokenizer.backend.encode_batch(list(texts), add_special_tokens=False)
        found: list[int] = []
        counts: list[int] = []
        for encoding in encodings:
            before = len(found)
            for _, word in groupby(zip(encoding.word_ids, encoding.ids, strict=True), itemgetter(0)):
                ids = tuple([id for _, id in word])
                number = self.numbers.get(ids)
                found.append(self._new_word(ids) if number is None else number)
            counts.append(len(found) - before)
        missing = len(self.numbers) * self.draws - len(self.drawn)
        self.drawn = np.append(self.drawn, np.full(missing, -1, np.int32))
        return np.array(found, np.int64), np.array(counts, np.int64)

    def _new_word(self, ids: tuple[int, ...]) -> int:
        symbols = list(ids)  # nothing can be merged any more
        if len(ids) > 1 or not (self.looked_up or ids[0] in self.added):
            tokens = [self.tokenizer.token(id) for id in ids]
            letters = symbols_of(tokens, self.style, self.opaque, self.bytes_too)
            if len(letters) <= LONGEST and all(letter in self.vocab for letter in letters):
                symbols = [self.vocab[letter] for letter in letters]
        self.symbols.append(symbols)
        self.keys.append(_key(self.seed, *ids))
        return self.numbers.setdefault(ids, len(self.numbers))

    def _draw(self, wanted: Numbers) -> None:
        """Draw these cuts: each is the number of a word times `draws`, and which of them."""
        word, draw = np.divmod(wanted, self.draws)
        own, of_own = np.unique(word, return_inverse=True)
        sizes = np.array([len(self.symbols[number]) for number in own.tolist()], np.int64)[of_own]
        lengths = np.zeros_like(sizes)
        found = []
        for size in np.unique(sizes).tolist():
            of_size = np.flatnonzero(sizes == size)
            for chosen in np.array_split(of_size, -(-len(of_size) * size // AT_ONCE)):
                numbers, column = np.unique(word[chosen], return_inverse=True)
                symbols = np.array([self.symbols[number] for number in numbers.tolist()], np.int32).T
                keys = np.array([self.keys[number] for number in numbers.tolist()], np.uint64)
                keys = mixed_bits(keys[column] + draw[chosen].astype(np.uint64))
                for columns, cut in self.merges.run(symbols[:, column], keys):
                    lengths[chosen[columns]] = len(cut)
                    found.append((chosen[columns], cut))
        self.drawn[wanted] = np.arange(len(wanted)) + len(self.starts) - 1
        starts, ids = np.cumsum(lengths) - lengths, np.empty(lengths.sum(), np.int32)
        for columns, cut in found:
            ids[starts[columns] + np.arange(len(cut))[:, None]] = cut
        self.starts = np.append(self.starts, self.starts[-1] + np.cumsum(lengths))
        self.ids = np.append(self.ids, ids)


class Merges:
    """The list of merges, each of which is dropped with probability `dropout` whenever it is possible."""

    def __init__(self, model: Mapping[str, Any], dropout: float) -> None:
        vocab, n_prefix = model["vocab"], len(model.get("continuing_subword_prefix") or "")
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        self.wholes = np.array([vocab[left + right[n_prefix:]] for left, right in pairs], np.int32)
        self.base = max(vocab.values()) + 1
        ranks = {vocab[left] * self.base + vocab[right]: rank for rank, (left, right) in enumerate(pairs)}
        self.pairs = np.array(sorted(ranks), np.int64)
        self.ranks = np.array([ranks[pair] for pair in self.pairs.tolist()], np.int64)
        self.dropped = np.uint64(min(round(dropout * 2**64), 2**64 - 1))  # as a share of all 64-bit numbers

    def run(self, symbols: Ids, keys: Bits) -> Iterator[tuple[Numbers, Ids]]:
        """Merges the columns of a matrix, words of the same length, until every possible merge is dropped.

        Yields the words that are finished after 0, 1, 2 … merges: their columns and their symbols.
        """
        columns, ranks = np.arange(symbols.shape[1]), self.rank(symbols[:-1], symbols[1:])
        for step in range(len(symbols)):
            place = np.arange(len(ranks))[:, None]
            drawn = mixed_bits(mixed_bits(keys + np.uint64(step)) + place.astype(np.uint64))
            best = np.where(drawn < self.dropped, NO_WAY, ranks << PLACE | place).min(axis=0, initial=NO_WAY)
            going = best < NO_WAY
            yield columns[~going], symbols[:, ~going]
            columns, keys, best = columns[going], keys[going], best[going]
            symbols, ranks = symbols[:, going], ranks[:, going]
            if len(columns):
                symbols, ranks = self._merged(symbols, ranks, best & (1 << PLACE) - 1, best >> PLACE)

    def _merged(self, symbols: Ids, ranks: Numbers, at: Numbers, rank: Numbers) -> tuple[Ids, Numbers]:
        """Merges the symbols at `at` and `at + 1` of each column."""
        column, row = np.arange(len(at)), np.arange(len(ranks))[:, None]
        symbols = np.where(row > at, symbols[1:], symbols[:-1])
        symbols[at, column] = self.wholes[rank]
        ranks = np.where(row[:-1] < at, ranks[:-1], ranks[1:])
        for left, there in ((at - 1, at > 0), (at, at < len(ranks))):
            left, of = left[there], column[there]
            ranks[left, of] = self.rank(symbols[left, of], symbols[left + 1, of])
        return symbols, ranks

    def rank(self, left: Ids, right: Ids) -> Numbers:
        """The ranks of these pairs in the list of merges."""
        pair = left.astype(np.int64) * self.base + right
        at = np.minimum(np.searchsorted(self.pairs, pair), len(self.pairs) - 1)
        return np.where(self.pairs[at] == pair, self.ranks[at], NO_MERGE)


def ranges_of(starts: Numbers, lengths: Numbers) -> Numbers:
    """start, start + 1, …, as many as each length, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _key(*parts: int) -> int:
    """A hash of the numbers, of 64 bits."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")
