"""A regular expression as an automaton (Thompson 1968) that reads characters, or bytes of UTF-8.

    states = automaton.start
    for char in "ab": states = automaton.after(states, char)
    automaton.matches(states)

It knows which characters a state takes as ranges, so that the first byte of a character is refused where none of those
that begin with it may come.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from cutaway.errors import InputError

MOST_STATES = 10_000
LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)  # numbers that are no characters
SYMBOLS = {
    "AT_BEGINNING": "^", "AT_END": "$", "AT_BEGINNING_STRING": r"\A", "AT_END_STRING": r"\Z", "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B", "ASSERT": "(?=…)", "ASSERT_NOT": "(?!…)", "GROUPREF": r"\1",
    "GROUPREF_EXISTS": "(?(1)…)", "ATOMIC_GROUP": "(?>…)", "POSSESSIVE_REPEAT": "*+",
}  # fmt: skip
CATEGORIES = {"digit": r"\d", "space": r"\s", "word": r"\w"}
States = frozenset[int]
Ranges = tuple[tuple[int, int], ...]  # of characters, in order, apart from each other
Reading = tuple[States, bytes]  # the states, and the bytes of a character that is not complete


class Automaton:
    """State 0 begins. `after` reads a character; no states: the text can no longer match."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.free: list[list[int]] = [[]]  # from each state, where one gets without a character
        self.moves: list[tuple[Ranges, int] | None] = [None]  # and with one
        try:
            parsed = parser.parse(pattern)
        except (re.error, RecursionError, OverflowError, TypeError) as error:
            raise InputError(f"allow={pattern!r} is no regular expression: {error}") from None
        if parsed.state.flags & ~(re.UNICODE | re.DOTALL):
            raise self._unknown("flags such as (?i)")
        self.dot_all = bool(parsed.state.flags & re.DOTALL)
        items = list(parsed)
        if items and str(items[0][1]) in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            items = items[1:]  # the whole text has to match: they say nothing new
        if items and str(items[-1][1]) in ("AT_END", "AT_END_STRING"):
            items = items[:-1]
        self.last = self._sequence(items, 0)
        self.start = self._closed([0])

    def after(self, states: States, char: str) -> States:
        moves, code = (self.moves[state] for state in states), ord(char)
        return self._closed(
            [to for move in moves if move is not None for ranges, to in [move] if first(ranges, code, code) >= 0]
        )

    def after_byte(self, reading: Reading, byte: int) -> Reading | None:
        """None where no character that begins with these bytes may come."""
        return self._after_byte(reading[0], reading[1] + bytes([byte]))

    def _after_byte(self, states: States, open_: bytes) -> Reading | None:
        low, high, whole = characters_from(open_)
        if whole:
            after = self.after(states, chr(low))
            return (after, b"") if after else None
        moves = (self.moves[state] for state in states)
        return (states, open_) if any(move and first(move[0], low, high) >= 0 for move in moves) else None

    def matches(self, states: States) -> bool:
        return self.last in states

    def matches_text(self, text: str) -> bool:
        states = self.start
        for char in text:
            states = self.after(states, char)
        return self.matches(states)

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
        before = []
        for place, (kind, what) in enumerate(items):
            before.append(at)
            if again := _again(items, place):  # x(,x)*: behind the comma, the states of x once more
                comma = self._sequence(what[2][:-again], self._fresh(at))
                self.free[comma].append(before[place - again])
                at = self._fresh(at)
            else:
                at = self._item(str(kind), what, at)
        return at

    def _item(self, kind: str, what: Any, at: int) -> int:
        if kind == "SUBPATTERN":
            _, add, remove, inner = what
            if add or remove:
                raise self._unknown("flags such as (?i:…)")
            return self._sequence(inner, at)
        if kind == "BRANCH":
            end = self._state()
            for inner in what[1]:
                start = self._state()
                self.free[at].append(start)
                self.free[self._sequence(inner, start)].append(end)
            return end
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = what
            return self._repeat(least, most, inner, at)
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            end = self._state()
            self.moves[at] = (self._ranges(kind, what), end)
            return self._fresh(end)
        raise self._unknown(SYMBOLS.get(str(what) if kind == "AT" else kind, kind.lower()))

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

    def _ranges(self, kind: str, what: Any) -> Ranges:
        match kind:
            case "LITERAL":
                return ((what, what),)
            case "NOT_LITERAL":
                return others(((what, what),))
            case "ANY":
                return ((0, LAST),) if self.dot_all else others(((10, 10),))
            case "RANGE":
                return (what,)
            case "CATEGORY":
                _, *no, name = str(what).lower().split("_")
                return others(category(name)) if no else category(name)
            case "IN":
                inside = bool(what) and str(what[0][0]) != "NEGATE"
                parts = [self._ranges(str(kind), item) for kind, item in what if str(kind) != "NEGATE"]
                together = merged([one for part in parts for one in part])
                return together if inside else others(together)
        raise self._unknown(kind.lower())

    def _unknown(self, what: str) -> InputError:
        return InputError(f"allow={self.pattern!r} uses {what}: write it with characters, classes, | and repeats")


def _again(items: Any, place: int) -> int:
    """How many items in front of a `*` are those with which each of its rounds ends."""
    kind, what = items[place]
    if str(kind) not in ("MAX_REPEAT", "MIN_REPEAT") or what[:2] != (0, parser.MAXREPEAT):
        return 0
    pairs = zip(range(place - 1, -1, -1), range(len(what[2]) - 1, -1, -1), strict=False)
    return sum(1 for _ in takewhile(lambda pair: _equal(items[pair[0]], what[2][pair[1]]), pairs))


def _equal(one: Any, other: Any) -> bool:
    """Whether two parsed expressions are the same."""
    if isinstance(one, parser.SubPattern | list | tuple) and isinstance(other, parser.SubPattern | list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def first(ranges: Ranges, low: int, high: int, among: Sequence[int] | None = None) -> int:
    """The first character of these ranges from `low` to `high`, if asked for one `among` some; −1: there is none."""
    for start, stop in ranges[max(0, bisect_right(ranges, (low, LAST)) - 1) :]:
        if start > high:
            break
        begin, end = max(start, low), min(stop, high)
        if among is not None:
            at = bisect_left(among, begin)
            begin = among[at] if at < len(among) else LAST + 1
        if SURROGATES[0] <= begin <= SURROGATES[1]:
            begin = SURROGATES[1] + 1
        if begin <= end:
            return begin
    return -1


@lru_cache(maxsize=1 << 16)
def characters_from(data: bytes) -> tuple[int, int, bool]:
    """The first and last character whose UTF-8 begins so, and whether that is all of it; (1, 0, False): none."""
    lead = data[0]
    size = (1, 0, 2, 3, 4, 0)[bisect_right((0x80, 0xC2, 0xE0, 0xF0, 0xF5), lead)]
    if len(data) > size or any(byte & 0xC0 != 0x80 for byte in data[1:]):
        return 1, 0, False
    code = lead if size == 1 else lead & (0x7F >> size)
    for byte in data[1:]:
        code = code << 6 | byte & 0x3F
    bits = 6 * (size - len(data))
    low = max(code << bits, (0, 0x80, 0x800, 0x10000)[size - 1])
    high = min((code + 1 << bits) - 1, LAST)
    if SURROGATES[0] <= low <= SURROGATES[1]:
        return 1, 0, False
    if low < SURROGATES[0] <= high:
        high = SURROGATES[0] - 1
    return (low, high, len(data) == size) if low <= high else (1, 0, False)


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def others(ranges: Ranges) -> Ranges:
    """All other characters."""
    edges = [-1, *(edge for one in ranges for edge in one), LAST + 1]
    return tuple((low + 1, high - 1) for low, high in zip(edges[::2], edges[1::2], strict=True) if low + 1 < high)


@lru_cache(maxsize=8)
def category(name: str) -> Ranges:
    r"""The characters of \d, \s or \w."""
    everything = "".join(map(chr, range(LAST + 1)))
    return tuple((found.start(), found.end() - 1) for found in re.finditer(f"{CATEGORIES[name]}+", everything))
