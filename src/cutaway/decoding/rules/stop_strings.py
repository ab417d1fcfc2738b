"""Stop strings in a beam: behind one a text ends, so that it is ranked by what is kept of it.

Where one text is written, whoever spells it says when to stop. In a beam that would be too late: what follows a stop
string would decide which texts are kept. So the model is told that behind a stop string nothing but its end token can
follow, and that for certain: the search goes on as with any other text that has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from cutaway.decoding.detokenize import Speller
from cutaway.decoding.rules.scores import Rule, Scores, Text
from cutaway.decoding.search.search import NEVER
from cutaway.tokens import Tokenizer

Known = tuple[tuple[int, ...], tuple[int, ...]]  # prompt, and what is new


@dataclass(frozen=True)
class Stopping(Rule):
    """log p(end) = 0 behind one of the stop strings, whatever other rules say."""

    stops: tuple[str, ...]
    tokenizer: Tokenizer = field(repr=False)
    option: ClassVar[str] = "stop"
    on_host: ClassVar[bool] = True
    rank: ClassVar[int] = 9

    def __call__(self, scores: Scores, text: Text) -> Scores:
        scores, end = scores.clone(), int(text.ends[0])
        spellers: dict[Known, Speller] = {}
        for row, known in enumerate(text.rows()):
            if known is not None:
                speller = self._speller(*known)
                spellers[tuple(known[0]), tuple(known[1])] = speller
                if speller.stopped:
                    scores[row] = NEVER
                    scores[row, end] = 0.0
        self._last.clear()
        self._last.update(spellers)
        return scores

    @cached_property
    def _last(self) -> dict[Known, Speller]:
        """Who spelled the texts of the last step: each goes on from one of them."""
        return {}

    def _speller(self, prompt: Sequence[int], new: Sequence[int]) -> Speller:
        before = self._last.get((tuple(prompt), tuple(new[:-1])))
        speller = Speller(self.tokenizer, prompt, stops=self.stops) if before is None else before.copy()
        speller.hear(new)
        return speller
