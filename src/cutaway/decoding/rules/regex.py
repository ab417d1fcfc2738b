"""A regular expression as a rule: only tokens after which the text can still become a full match, and in time.

    generate(model, tokenizer, "The year was", allow=r" \\d{4}\\.")

The expression becomes an automaton. All tokens are tried at once, byte by byte; what may follow a state is found once
and kept (Willard & Louf 2023). The end is allowed where the text matches. A token
after which the text could not become a match within its limit is not.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.decoding.rules.allowed import Stuck, only
from cutaway.decoding.rules.regex_automaton import LAST, Automaton, Reading, characters_from, first
from cutaway.decoding.rules.scores import Rule, Scores, Text
from cutaway.decoding.rules.token_bytes import Pieces, marks_ends_of_words, pieces_of
from cutaway.decoding.rules.token_steps import TokenSteps
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

UNKNOWN = 1 << 40  # tokens, or more: no way is known
MOST_KNOWN = 1024
UNLIKELY = 1000  # bytes: a way over characters that no token stands for is taken if there is no other


class Completion:
    """In how many tokens a match can be completed from each state: of one way, so that there may be a shorter one.

    The way is the shortest in bytes, with the first character of each class; all ways lead into one another, so that
    the number of tokens along them is found from the end, one state after another.
    """

    def __init__(self, automaton: Automaton, pieces: Pieces) -> None:
        self.automaton, self.pieces = automaton, pieces
        self.way: dict[int, tuple[bytes, int]] = {}  # from each state: the next character, and where it leads
        self.tokens: dict[int, list[int]] = {automaton.last: [0]}  # from each state, and from inside that character
        self._partial: dict[Reading, int] = {}
        self._find_ways()

    def of(self, reading: Reading) -> int:
        """Tokens; `UNKNOWN` where no way is known."""
        states, open_ = reading
        if not open_:
            return min((self.tokens[state][0] for state in states if state in self.tokens), default=UNKNOWN)
        best = self._partial.get(reading)
        if best is None:
            low, high, _ = characters_from(open_)
            best = UNKNOWN
            for move in (self.automaton.moves[state] for state in states):
                if move is not None and move[1] in self.tokens and (code := self._choose(move[0], low, high)) >= 0:
                    best = min(best, self._spell(chr(code).encode()[len(open_) :], move[1])[0])
            if len(self._partial) > MOST_KNOWN:
                self._partial.clear()
            self._partial[reading] = best
        return best

    def _find_ways(self) -> None:
        """Shortest paths from the end (Dijkstra 1959)."""
        back: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for state, (free, move) in enumerate(zip(self.automaton.free, self.automaton.moves, strict=True)):
            for to in free:
                back[to].append((state, b""))
            if move is not None and (code := self._choose(move[0], 0, LAST)) >= 0:
                back[move[1]].append((state, chr(code).encode()))
        waiting, done = [(0, self.automaton.last, b"", self.automaton.last)], set()
        while waiting:
            far, state, char, to = heappop(waiting)
            if state in done:
                continue
            done.add(state)
            if state != self.automaton.last:
                self.way[state] = (char, to)
                self.tokens[state] = self._spell(char, to) if char else self.tokens[to]
            for before, its in back[state]:
                known = not its or ord(its.decode()) in self._characters or self.pieces.spells_all
                heappush(waiting, (far + len(its) + UNLIKELY * (not known), before, its, state))

    @cached_property
    def _characters(self) -> set[int]:
        return set(self.pieces.characters)

    def _choose(self, ranges: tuple[tuple[int, int], ...], low: int, high: int) -> int:
        """A character that a token stands for, if there is one."""
        code = first(ranges, low, high, self.pieces.characters)
        return code if code >= 0 else first(ranges, low, high)

    def _spell(self, data: bytes, to: int) -> list[int]:
        """The tokens for data[i:] and then for the way from `to` on, for every i."""
        counts: list[int] = [UNKNOWN] * len(data)
        for i in reversed(range(len(data))):
            node, state, piece, at, here = self.pieces.root, to, data, i, counts
            while True:
                if at == len(piece):
                    if state == self.automaton.last:
                        break
                    here = self.tokens[state]
                    piece, state = self.way[state]
                    at = 0
                    continue
                if piece[at] not in node.children:
                    break
                node, at = node.children[piece[at]], at + 1
                if node.ids:
                    counts[i] = min(counts[i], 1 + (here[at] if at < len(piece) else self.tokens[state][0]))
        return counts


class Expression:
    """An expression and a vocabulary: which tokens may follow, and how soon a match can be complete behind each."""

    def __init__(self, pattern: str, tokenizer: Tokenizer) -> None:
        if marks_ends_of_words(tokenizer):
            raise InputError("allow: this tokenizer marks the ends of words, so a token's text depends on the next one")
        self.automaton, self.tokenizer = Automaton(pattern), tokenizer
        self.special = set(tokenizer.special_ids().values())
        self.known: dict[tuple[tuple[int, ...], bool], Reading] = {}  # of the last texts
        self.steps = TokenSteps(self.automaton)
        self.following = lru_cache(maxsize=32)(self._following)  # half a megabyte each

    @cached_property
    def completion(self) -> Completion:
        return Completion(self.automaton, pieces_of(self.tokenizer, True))

    def begun(self, prompt: list[int]) -> bool:
        return not self.special.issuperset(prompt)

    def spelled(self, new: Sequence[int], begun: bool) -> bytes:
        return b"".join(pieces_of(self.tokenizer, begun or place > 0).bytes[id] for place, id in enumerate(new))

    def read(self, new: tuple[int, ...], begun: bool) -> Reading:
        """The reading after these tokens: most often they are one more than before."""
        reading: Reading | None = self.known.get((new[:-1], begun)) if len(new) > 1 else None
        data = self.spelled(new, begun) if reading is None else pieces_of(self.tokenizer, True).bytes[new[-1]]
        reading = (self.automaton.start, b"") if reading is None else reading
        for byte in data:
            reading = self.automaton.after_byte(reading, byte) if reading else None
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        self.known[new, begun] = reading = reading or (frozenset(), b"")
        return reading

    def _following(self, reading: Reading, begun: bool) -> list[tuple[int, Tensor]]:
        """Tokens by how many more are needed behind them; the fewest first."""
        found: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
        for end, ids in self.steps.ends(reading, pieces_of(self.tokenizer, begun)):
            found[self.completion.of(end)].append(ids)
        return [(far, torch.from_numpy(np.concatenate(some))) for far, some in sorted(found.items())]


@lru_cache(maxsize=16)
def _expression(pattern: str, tokenizer: Tokenizer) -> Expression:
    return Expression(pattern, tokenizer)


@dataclass(frozen=True)
class Matching(Rule):
    """What is written, the prompt aside, becomes a full match of `pattern`, within `limit` tokens if one is given."""

    pattern: str
    tokenizer: Tokenizer = field(repr=False)
    limit: int | None = None
    option: ClassVar[str] = "allow"
    on_host: ClassVar[bool] = True
    rank: ClassVar[int] = 4

    def __post_init__(self) -> None:
        self.expression  # noqa: B018  a broken expression is an error now

    @property
    def expression(self) -> Expression:
        return _expression(self.pattern, self.tokenizer)

    def matches(self, text: str) -> bool:
        return self.expression.automaton.matches_text(text)

    def needs(self, prompt: list[int]) -> int:
        """How many tokens are enough for a match behind this prompt; `UNKNOWN` where no way is known."""
        expression = self.expression
        begun = expression.begun(prompt)
        reading = expression.read((), begun)
        ways = [1 + far for far, _ in expression.following(reading, begun)]
        return min([1 if expression.automaton.matches(reading[0]) else UNKNOWN, *ways])

    def __call__(self, scores: Scores, text: Text) -> Scores:
        ends, n = text.ends.tolist(), scores.shape[1]

        def allowed(prompt: list[int], new: list[int]) -> Tensor:
            ids = self._allowed(prompt, new, ends)
            return ids if self.tokenizer.vocab_size <= n else ids[ids < n]  # it may know more

        return only(scores, text, allowed)

    def _allowed(self, prompt: list[int], new: list[int], ends: list[int]) -> Tensor:
        expression, begun = self.expression, self.expression.begun(prompt)
        states, open_ = expression.read(tuple(new), begun)
        complete = not open_ and expression.automaton.matches(states)
        groups = expression.following((states, open_), begun or bool(new))
        left = UNKNOWN - 1 if self.limit is None else self.limit - len(new) - 1
        some = [ids for far, ids in groups if far <= left]
        if not some:  # ways that are not known may be there
            some = [ids for far, ids in groups if far >= UNKNOWN]
        some += [torch.tensor(ends)] if complete and ends else []
        if not some:
            text = expression.spelled(new, begun).decode(errors="replace")
            raise Stuck(
                f"{self}: {text!r} is complete, but this model has no end token: lower max_tokens"
                if complete
                else f"{self}: {text!r} cannot become a match within {self.limit} tokens: raise max_tokens"
                if groups
                else f"{self}: no token of this vocabulary can follow {text!r}"
            )
        return torch.cat(some)
