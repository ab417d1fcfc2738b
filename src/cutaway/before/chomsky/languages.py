"""Formal languages, each as an automaton with as much memory as its place in Chomsky's hierarchy requires.

    regular             finite states            local: no aaa          parity: an even number of b
    context-free        a stack                  dyck-k: k kinds of brackets, nested        mirror: nested dependencies
    beyond              counters, a queue        shuffle-k: each kind balanced by itself    abc: aⁿbⁿcⁿ
                                                 copy: ww               crossed: cross-serial dependencies

`mirror` and `crossed` are nouns and then their verbs, c belonging to a and d to b. German nests them, the last noun's
verb first (abbddc); Swiss German crosses them, the first noun's verb first (abbcdd), which no stack can do (Shieber
1985).

A language defines its start state, the transitions, where a word may end, and in how many ways a word can be completed
with n more symbols. The rest follows: acceptor, next symbols, all words of a length, and uniform sampling.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from math import comb
from typing import Any

from cutaway.errors import InputError

State = Any  # hashable; None: no word begins like this
OPENING, CLOSING = "([{<", ")]}>"


class Language(ABC):
    """Words over `symbols`. From every state but None, a word can still be completed."""

    name: str
    kind: str  # its place in the hierarchy
    symbols: str
    start: State

    @abstractmethod
    def step(self, state: State, symbol: str) -> State:
        """The state after one more symbol; None if no word begins like this."""

    @abstractmethod
    def ends(self, state: State) -> bool:
        """Whether a word may end in this state."""

    @abstractmethod
    def ways(self, state: State, n: int) -> int:
        """The number of ways to complete a word with n more symbols."""

    def read(self, word: str) -> State:
        state = self.start
        for symbol in word:
            state = None if state is None or symbol not in self.symbols else self.step(state, symbol)
        return state

    def accepts(self, word: str) -> bool:
        state = self.read(word)
        return state is not None and self.ends(state)

    def next_symbols(self, state: State) -> str:
        """The symbols that may come next."""
        return "".join(symbol for symbol in self.symbols if self.step(state, symbol) is not None)

    def words(self, length: int) -> Iterator[str]:
        """All words of this length, in the order of the symbols."""
        if self.ways(self.start, length):
            yield from self._finished("", self.start, length)

    def _finished(self, word: str, state: State, n: int) -> Iterator[str]:
        if n == 0:
            yield word
            return
        for symbol in self.symbols:
            state_behind = self.step(state, symbol)
            if state_behind is not None and self.ways(state_behind, n - 1):
                yield from self._finished(word + symbol, state_behind, n - 1)

    def draw(self, length: int, source: random.Random) -> str:
        """A random word of this length, all equally likely."""
        word, state = "", self.start
        if not self.ways(state, length):
            raise InputError(f"{self.name} has no word of {length} symbols")
        for n in reversed(range(length)):
            which = source.randrange(self.ways(state, n + 1))
            for symbol in self.symbols:
                behind = self.step(state, symbol)
                which -= 0 if behind is None else self.ways(behind, n)
                if which < 0:
                    word, state = word + symbol, behind
                    break
        return word

    def lengths(self, shortest: int, longest: int) -> list[int]:
        """The lengths from `shortest` to `longest` that some word has."""
        return [n for n in range(shortest, longest + 1) if self.ways(self.start, n)]


class Regular(Language):
    """A finite automaton: `table[state][symbol]` is the next state, and some states are final."""

    kind, start = "regular", 0

    def __init__(self, name: str, table: list[dict[str, int]], final: set[int]) -> None:
        self.name, self.table, self.final = name, table, final
        self.symbols = "".join(sorted({symbol for row in table for symbol in row}))
        self.counts = [[int(state in final) for state in range(len(table))]]

    def step(self, state: State, symbol: str) -> State:
        return self.table[state].get(symbol)

    def ends(self, state: State) -> bool:
        return state in self.final

    def ways(self, state: State, n: int) -> int:
        while len(self.counts) <= n:
            fewer = self.counts[-1]
            self.counts.append([sum(fewer[to] for to in row.values()) for row in self.table])
        return self.counts[n][state]


def ways_to_close(depth: int, n: int) -> int:
    """In how many ways n more brackets of one kind balance `depth` open ones (ballot numbers)."""
    up, odd = divmod(n - depth, 2)
    return 0 if odd or up < 0 else comb(n, up) - (comb(n, up - 1) if up else 0)


class Dyck(Language):
    """Nested brackets of k kinds. The state is the stack of open ones."""

    kind, start = "context-free", ""

    def __init__(self, k: int) -> None:
        self.name, self.symbols = f"dyck-{k}", OPENING[:k] + CLOSING[:k]
        self.k = k

    def step(self, state: State, symbol: str) -> State:
        kind = CLOSING.find(symbol)
        if kind < 0:
            return state + symbol
        return state[:-1] if state.endswith(OPENING[kind]) else None

    def ends(self, state: State) -> bool:
        return not state

    def ways(self, state: State, n: int) -> int:
        return ways_to_close(len(state), n) * self.k ** max((n - len(state)) // 2, 0)


class Shuffle(Language):
    """Brackets of k kinds, each balanced on its own, as in ([)]. The state counts the open ones."""

    def __init__(self, k: int) -> None:
        self.name, self.symbols = f"shuffle-{k}", OPENING[:k] + CLOSING[:k]
        self.kind = "context-sensitive" if k > 1 else "context-free"
        self.start = (0,) * k

    def step(self, state: State, symbol: str) -> State:
        kind, by = CLOSING.find(symbol), -1
        if kind < 0:
            kind, by = OPENING.index(symbol), 1
        depth = state[kind] + by
        return None if depth < 0 else (*state[:kind], depth, *state[kind + 1 :])

    def ends(self, state: State) -> bool:
        return not any(state)

    def ways(self, state: State, n: int) -> int:
        return _interleaved(tuple(sorted(state)), n)


@cache
def _interleaved(depths: tuple[int, ...], n: int) -> int:
    """The first kind takes m of the n positions, and the others the rest."""
    first, *others = depths
    if not others:
        return ways_to_close(first, n)
    rest = tuple(others)
    return sum(comb(n, m) * ways_to_close(first, m) * _interleaved(rest, n - m) for m in range(first, n + 1, 2))


class Abc(Language):
    """aⁿbⁿcⁿ with n ≥ 1. The state counts the three."""

    name, kind, symbols, start = "abc", "mildly context-sensitive", "abc", (0, 0, 0)

    def step(self, state: State, symbol: str) -> State:
        a, b, c = state
        match symbol:
            case "a" if not b:
                return a + 1, 0, 0
            case "b" if b < a:
                return a, b + 1, 0
            case "c" if b == a > c:
                return a, b, c + 1
        return None

    def ends(self, state: State) -> bool:
        a, b, c = state
        return bool(0 < a == b == c)

    def ways(self, state: State, n: int) -> int:
        a, b, c = state
        if b:
            return int(n == 2 * a - b - c)
        more, odd = divmod(n - 2 * a, 3)  # more a, each with its b and c, besides those of the a that are there
        return int(not odd and more >= 0 and a + more > 0)


class Copy(Language):
    """ww for a non-empty w over a and b. The state is everything read so far."""

    name, kind, symbols, start = "copy", "mildly context-sensitive", "ab", ""

    def step(self, state: State, symbol: str) -> State:
        return state + symbol

    def ends(self, state: State) -> bool:
        half, odd = divmod(len(state), 2)
        return not odd and half > 0 and state[:half] == state[half:]

    def ways(self, state: State, n: int) -> int:
        half, odd = divmod(len(state) + n, 2)
        if odd or not half:
            return 0
        if len(state) <= half:
            return 2 ** (half - len(state))
        return int(state[half:] == state[: len(state) - half])


class Paired(Language):
    """Nouns a and b, then their verbs c and d: in the same order (crossed), or in reverse order (mirror).
    The state is the verbs still to come, and whether one has come."""

    symbols, start = "abcd", ("", False)

    def __init__(self, name: str, kind: str, *, crossed: bool) -> None:
        self.name, self.kind, self.crossed = name, kind, crossed

    def step(self, state: State, symbol: str) -> State:
        verbs, begun = state
        if symbol in "ab":
            verb = "cd"["ab".index(symbol)]
            return None if begun else ((verbs + verb if self.crossed else verb + verbs), False)
        return (verbs[1:], True) if verbs.startswith(symbol) else None

    def ends(self, state: State) -> bool:
        verbs, begun = state
        return begun and not verbs

    def ways(self, state: State, n: int) -> int:
        verbs, begun = state
        if begun:
            return int(n == len(verbs))
        more, odd = divmod(n - len(verbs), 2)
        return 2**more if not odd and more >= 0 and (verbs or more) else 0


LANGUAGES: dict[str, Language] = {
    language.name: language
    for language in (
        Regular("local", [{"a": 1, "b": 0}, {"a": 2, "b": 0}, {"b": 0}], {0, 1, 2}),
        Regular("parity", [{"a": 0, "b": 1}, {"a": 1, "b": 0}], {0}),
        Dyck(1),
        Dyck(2),
        Paired("mirror", "context-free", crossed=False),
        Shuffle(2),
        Abc(),
        Copy(),
        Paired("crossed", "mildly context-sensitive", crossed=True),
    )
}


def language_named(name: str) -> Language:
    """One of LANGUAGES, or another dyck-k or shuffle-k."""
    if name in LANGUAGES:
        return LANGUAGES[name]
    kind, _, k = name.partition("-")
    if kind in ("dyck", "shuffle") and k in ("1", "2", "3", "4"):
        return (Dyck if kind == "dyck" else Shuffle)(int(k))
    raise InputError(f"no language is called {name!r}: {', '.join(LANGUAGES)}; dyck and shuffle also with 1 to 4 kinds")


def draw_words(language: Language, shortest: int, longest: int, n: int, seed: int) -> list[str]:
    """Draws words of all lengths in turn; those of one length are equally likely."""
    lengths = language.lengths(shortest, longest)
    if not lengths:
        raise InputError(f"{language.name} has no words of {shortest} to {longest} symbols: allow longer ones")
    source = random.Random(f"{language.name} {shortest} {seed}")
    return [language.draw(lengths[i % len(lengths)], source) for i in range(n)]
