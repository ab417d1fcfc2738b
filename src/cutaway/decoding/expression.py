"""A regular expression as a rule: only tokens after which the text can still become a full match.

    generate(model, tokenizer, "The year was", allow=r" \\d{4}\\.")

The expression becomes an automaton (Thompson 1968) that reads characters. The tokens' texts stand in a tree of
characters, so that all of them are tried at once; what may follow a state is found once and kept (Willard & Louf 2023).
The end is allowed where the text matches. Tokens that are part of a character are not.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, ClassVar

from cutaway.decoding.rules import Rule, Scores, Stuck, Text, only
from cutaway.errors import InputError
from cutaway.tokens import Tokenizer

MOST_STATES = 10_000
CATEGORIES: dict[str, Callable[[str], bool]] = {
    "digit": str.isdecimal,
    "space": str.isspace,
    "word": lambda char: char.isalnum() or char == "_",
}
States = frozenset[int]


class Automaton:
    """State 0 begins. `after` reads a character; no states: the text can no longer match."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.free: list[list[int]] = [[]]  # from each state, where one gets without a character
        self.moves: list[tuple[Callable[[str], bool], int] | None] = [None]  # and with one
        self.known: dict[tuple[States, str], States] = {}
        try:
            parsed = parser.parse(pattern)
        except (re.error, RecursionError, OverflowError, TypeError) as error:
            raise InputError(f"allow={pattern!r} is no regular expression: {error}") from None
        if parsed.state.flags & ~(re.UNICODE | re.DOTALL):
            raise self._unknown("flags")
        self.dot_all = bool(parsed.state.flags & re.DOTALL)
        items = list(parsed)
        if items and str(items[0][1]) == "AT_BEGINNING":  # the whole text has to match: they say nothing new
            items = items[1:]
        if items and str(items[-1][1]) == "AT_END":
            items = items[:-1]
        self.last = self._sequence(items, 0)
        self.start = self._closed([0])

    def after(self, states: States, char: str) -> States:
        key = (states, char)
        if key not in self.known:
            moves = (self.moves[state] for state in states)
            self.known[key] = self._closed(
                [to for move in moves if move is not None for test, to in [move] if test(char)]
            )
        return self.known[key]

    def matches(self, states: States) -> bool:
        return self.last in states

    def _closed(self, states: list[int]) -> States:
        found: set[int] = set()
        while states:
            state = states.pop()
            if state not in found:
                found.add(state)
                states.extend(self.free[state])
        return frozenset(found)

    def _state(self) -> int:
        if len(self.free) == MOST_STATES:
            raise InputError(f"allow={self.pattern!r} repeats too much: it needs more than {MOST_STATES} states")
        self.free.append([])
        self.moves.append(None)
        return len(self.free) - 1

    def _sequence(self, items: Any, at: int) -> int:
        """States that read these items from state `at` on; the state after them."""
        for kind, what in items:
            at = self._item(str(kind), what, at)
        return at

    def _item(self, kind: str, what: Any, at: int) -> int:
        if kind == "SUBPATTERN":
            _, add, remove, inner = what
            if add or remove:
                raise self._unknown("flags")
            return self._sequence(inner, at)
        if kind == "BRANCH":
            end = self._state()
            for inner in what[1]:
                first = self._state()
                self.free[at].append(first)
                self.free[self._sequence(inner, first)].append(end)
            return end
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = what
            return self._repeat(least, most, inner, at)
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            end = self._state()
            self.moves[at] = (self._test(kind, what), end)
            return self._fresh(end)
        raise self._unknown(kind)

    def _repeat(self, least: int, most: Any, inner: Any, at: int) -> int:
        for _ in range(least):
            at = self._sequence(inner, self._fresh(at))
        if most is parser.MAXREPEAT:
            loop = self._fresh(at)
            back = self._sequence(inner, self._fresh(loop))
            self.free[back].append(loop)
            return self._fresh(loop)
        end = self._state()
        for _ in range(most - least):
            self.free[at].append(end)
            at = self._sequence(inner, self._fresh(at))
        self.free[at].append(end)
        return end

    def _fresh(self, at: int) -> int:
        """A state behind this one, so that each state has one move at most and loops stay apart."""
        state = self._state()
        self.free[at].append(state)
        return state

    def _test(self, kind: str, what: Any) -> Callable[[str], bool]:
        match kind:
            case "LITERAL":
                return chr(what).__eq__
            case "NOT_LITERAL":
                return chr(what).__ne__
            case "ANY":
                return (lambda char: True) if self.dot_all else "\n".__ne__
            case "RANGE":
                return lambda char: what[0] <= ord(char) <= what[1]
            case "CATEGORY":
                _, *no, name = str(what).lower().split("_")
                test = CATEGORIES[name]
                return (lambda char: not test(char)) if no else test
            case "IN":
                inside = bool(what) and str(what[0][0]) != "NEGATE"
                tests = [self._test(str(kind), item) for kind, item in what if str(kind) != "NEGATE"]
                return lambda char: any(test(char) for test in tests) is inside
        raise self._unknown(kind)

    def _unknown(self, what: str) -> InputError:
        return InputError(
            f"allow={self.pattern!r} uses {what.lower()}: write it with characters, classes, | and repeats"
        )


@dataclass
class Node:
    """The tokens whose text ends here, and what longer ones go on with."""

    ids: list[int] = field(default_factory=list)
    children: dict[str, "Node"] = field(default_factory=dict)


class Pieces:
    """What each token adds to a text that has begun, or begins a text with; nothing where it is part of a character."""

    def __init__(self, tokenizer: Tokenizer, *, begun: bool) -> None:
        if type(tokenizer.backend.decoder).__name__ == "BPEDecoder":
            raise InputError("allow: this tokenizer marks the ends of words, so a token's text depends on the next one")
        anchor = tokenizer.encode("a", special=False)[-1:] if begun else []
        skip = len(tokenizer.decode(anchor))
        texts = tokenizer.backend.decode_batch([[*anchor, id] for id in range(tokenizer.vocab_size)])
        self.texts = ["" if "\ufffd" in text else text[skip:] for text in texts]
        self.root = Node()
        for id, text in enumerate(self.texts):
            node = self.root
            for char in text:
                node = node.children.setdefault(char, Node())
            if text:
                node.ids.append(id)


@lru_cache(maxsize=8)
def _pieces(tokenizer: Tokenizer, begun: bool) -> Pieces:
    return Pieces(tokenizer, begun=begun)


@dataclass(frozen=True)
class Matching(Rule):
    """What is written, the prompt aside, becomes a full match of `pattern`, unless its limit cuts it off."""

    pattern: str
    tokenizer: Tokenizer
    on_host: ClassVar[bool] = True
    rank: ClassVar[int] = 4

    def __post_init__(self) -> None:
        self.automaton  # noqa: B018  a broken expression is an error now

    @cached_property
    def automaton(self) -> Automaton:
        return Automaton(self.pattern)

    @cached_property
    def _special(self) -> set[int]:
        return set(self.tokenizer.special_ids().values())

    @cached_property
    def _following(self) -> dict[tuple[States, bool], list[int]]:
        return {}

    def __call__(self, scores: Scores, text: Text) -> Scores:
        ends = text.ends.tolist()
        return only(scores, text, lambda prompt, new: self._allowed(prompt, new, ends))

    def _allowed(self, prompt: list[int], new: list[int], ends: list[int]) -> list[int]:
        blank = self._special.issuperset(prompt)
        states, said = self.automaton.start, []
        for place, id in enumerate(new):
            said.append(_pieces(self.tokenizer, place > 0 or not blank).texts[id])
            for char in said[-1]:
                states = self.automaton.after(states, char)
        key = (states, bool(new) or not blank)
        if key not in self._following:
            self._following[key] = list(self._search(*key))
        ids = self._following[key] + (ends if self.automaton.matches(states) else [])
        if not ids:
            text = "".join(said)
            raise Stuck(
                f"allow={self.pattern!r}: {text!r} is complete, but this model has no end token: lower max_tokens"
                if self.automaton.matches(states)
                else f"allow={self.pattern!r}: no token of this vocabulary can follow {text!r}"
            )
        return ids

    def _search(self, states: States, begun: bool) -> Iterator[int]:
        waiting = [(_pieces(self.tokenizer, begun).root, states)]
        while waiting:
            node, states = waiting.pop()
            yield from node.ids
            for char, child in node.children.items():
                if after := self.automaton.after(states, char):
                    waiting.append((child, after))
