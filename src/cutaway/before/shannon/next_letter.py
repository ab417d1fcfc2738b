"""What letter comes next, from a model that says tokens.

Behind «the hou» the next token is not the next letter: the model may have cut the word elsewhere, « house» in one piece
or « ho» and « use». So the last word is taken back, and the model asked for tokens behind «the»:

    P(letter | text) ∝ Σ P(tokens) over all ways to write « hou» + letter, the last token being the first that covers it

A token may cover the word and the letter (« house»), or only begin the word (« ho»): then the model is asked again
behind it. Ways that weigh less than a hundredth of the rest are left out.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from cutaway.arguments import Progress, no_progress
from cutaway.decoding.rules.token_bytes import pieces_of
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer

LIGHT = 0.01  # ways below this share of all that was found for a text are left out
WAYS, ASKED = 3, 8  # at most so many of a text at once, and so often
LONGEST = 48  # bytes of the last word that are taken back; of a longer one its last token
NEVER = 1e-6  # what a letter gets that no token says: nothing is impossible


class _Way(NamedTuple):
    """Tokens to query the model with; `rest` of text number `text` is still to be written."""

    text: int
    ids: list[int]
    rest: bytes
    weight: float


class NextLetter:
    """`fold` maps a character to a letter of the alphabet, or to None."""

    def __init__(
        self,
        model: DecoderModel,
        tokenizer: Tokenizer,
        letters: str,
        fold: Callable[[str], str | None] = lambda character: character,
        batch: int = 16,
    ) -> None:
        self.model, self.tokenizer, self.letters, self.batch = model.eval(), tokenizer, letters, batch
        pieces = pieces_of(tokenizer, begun=True).bytes
        spelt = sorted((piece, id) for id, piece in enumerate(pieces) if piece)
        self.pieces, self.order = [piece for piece, _ in spelt], np.array([id for _, id in spelt])
        said = {character for piece in self.pieces for character in piece.decode(errors="ignore")} | {*letters}
        folded = [(character.encode(), fold(character)) for character in sorted(said)]
        self.said = [(spelled, letters.index(to)) for spelled, to in folded if to is not None and to in letters]
        start_id = model.config.start_id
        self.start = [] if start_id is None else [start_id]
        # where nothing at all is known: a line begins, or else another text
        self.nothing = tokenizer.encode("\n", special=False) or list(model.config.end_ids or (0,))

    def __call__(self, texts: Sequence[str], progress: Progress = no_progress) -> Float64[np.ndarray, "text letter"]:
        """The probability of each letter after each text."""
        found = np.zeros((len(texts), len(self.letters)))
        ways = [self._begin(number, text) for number, text in enumerate(texts)]
        for asked in count():
            new: list[_Way] = []
            for lo in range(0, len(ways), self.batch):
                some = ways[lo : lo + self.batch]
                for way, p in zip(some, self._ask([way.ids for way in some]), strict=True):
                    new += self._follow(way, p, found[way.text])
                progress(min(lo + self.batch, len(ways)) if not asked else len(texts), len(texts))
            ways = [] if asked == ASKED else self._heavy(new, found)
            if not ways:
                break
        total = found.sum(axis=1, keepdims=True)
        found += NEVER * np.where(total > 0, total, 1.0)
        return found / found.sum(axis=1, keepdims=True)

    def _begin(self, number: int, text: str) -> _Way:
        """The tokens without the last word and the space before it."""
        cut = max((i for i, character in enumerate(text) if character.isspace()), default=0)
        if len(text[cut:].encode()) > LONGEST:
            last = self.tokenizer.encode_full(text, special=False).offsets[-1][0]
            cut = max(cut, last)
        ids = [*self.start, *self.tokenizer.encode(text[:cut], special=False)] or self.nothing
        most = max((self.model.max_len or len(ids) + ASKED) - ASKED, 1)
        return _Way(number, ids[-most:], text[cut:].encode(), 1.0)

    @torch.no_grad()
    def _ask(self, rows: list[list[int]]) -> Float64[np.ndarray, "row token"]:
        """The probabilities of the next token after each row, in the order of the pieces."""
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=self.model.device)
        last = torch.tensor([len(row) - 1 for row in rows], device=self.model.device)
        hidden = self.model.hidden(ids)  # padding stands on the right, where nobody looks
        scores = self.model.head(hidden[torch.arange(len(rows), device=last.device), last][:, None])[:, 0]
        check_scores(self.model, scores)
        return scores.double().softmax(-1).cpu().numpy()[:, self.order]

    def _follow(self, way: _Way, p: Float64[np.ndarray, " token"], found: Float64[np.ndarray, " letter"]) -> list[_Way]:
        """Adds the probabilities of single tokens to the next letter, and follows tokens that do not reach it."""
        sums = np.concatenate([[0.0], p.cumsum()])
        low, high = self._beginning(way.rest)
        for spelled, letter in self.said:
            first, last = self._beginning(way.rest + spelled, low, high)
            found[letter] += way.weight * (sums[last] - sums[first])
        new = []
        for length in range(1, len(way.rest) + 1):
            at = bisect_left(self.pieces, way.rest[:length])
            if at < len(self.pieces) and self.pieces[at] == way.rest[:length]:
                ids = [*way.ids, int(self.order[at])]
                new.append(_Way(way.text, ids, way.rest[length:], way.weight * float(p[at])))
        return new

    def _beginning(self, start: bytes, low: int = 0, high: int | None = None) -> tuple[int, int]:
        """The pieces with this beginning, which are adjacent when sorted."""
        if not start:
            return 0, len(self.pieces)
        high = len(self.pieces) if high is None else high
        first = bisect_left(self.pieces, start, low, high)
        after = start.rstrip(b"\xff")
        end = bisect_left(self.pieces, after[:-1] + bytes([after[-1] + 1]), first, high) if after else high
        return first, end

    def _heavy(self, ways: list[_Way], found: Float64[np.ndarray, "text letter"]) -> list[_Way]:
        of: dict[int, list[_Way]] = {}
        for way in sorted(ways, key=lambda way: -way.weight):
            of.setdefault(way.text, []).append(way)
        kept = []
        for number, some in of.items():
            total = float(found[number].sum()) + sum(way.weight for way in some)
            kept += [way for way in some[:WAYS] if way.weight > LIGHT * total]
        return kept
