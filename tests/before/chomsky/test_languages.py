"""Every language against its plain definition, and against its grammar."""

import random
import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.before.chomsky.languages import LANGUAGES, draw_words, language_named
from cutaway.errors import InputError

NAMES = [*LANGUAGES, "dyck-3", "shuffle-3"]
VERBS = str.maketrans("ab", "cd")


def balanced(word: str) -> bool:
    while word != (word := re.sub(r"\(\)|\[\]|\{\}", "", word)):
        pass
    return not word


def each_balanced(word: str) -> bool:
    return all(balanced(re.sub(f"[^{re.escape(kind)}]", "", word)) for kind in ("()", "[]", "{}"))


def paired(word: str, step: int) -> bool:
    nouns, verbs = word[: len(word) // 2], word[len(word) // 2 :]
    return bool(re.fullmatch("[ab]+", nouns)) and verbs == nouns.translate(VERBS)[::step]


DEFINED = {
    "local": lambda word: "aaa" not in word,
    "parity": lambda word: word.count("b") % 2 == 0,
    "dyck": balanced,
    "mirror": lambda word: paired(word, -1),
    "shuffle": each_balanced,
    "abc": lambda word: bool(word) and word == "a" * (n := len(word) // 3) + "b" * n + "c" * n,
    "copy": lambda word: bool(word) and word[: len(word) // 2] == word[len(word) // 2 :],
    "crossed": lambda word: paired(word, 1),
}


def defined(name: str, word: str) -> bool:
    return DEFINED[name.partition("-")[0]](word)


def longest(symbols: str) -> int:
    return {2: 9, 3: 7, 4: 6, 6: 4}[len(symbols)]


@pytest.mark.parametrize("name", NAMES)
def test_the_acceptor_and_the_list_of_words_are_those_of_the_definition(name):
    language = language_named(name)
    for n in range(longest(language.symbols) + 1):
        words = ["".join(word) for word in product(language.symbols, repeat=n)]
        expected = [word for word in words if defined(name, word)]
        assert [word for word in words if language.accepts(word)] == expected
        assert list(language.words(n)) == expected
        assert language.ways(language.start, n) == len(expected)
        assert language.lengths(n, n) == ([n] if expected else [])


@pytest.mark.parametrize("name", NAMES)
def test_behind_every_beginning_the_ways_on_are_counted_and_there_is_one(name):
    language = language_named(name)
    n = longest(language.symbols)
    words = [word for length in range(n + 1) for word in language.words(length)]
    for begun in ("".join(word) for m in range(n) for word in product(language.symbols, repeat=m)):
        state = language.read(begun)
        for more in range(n - len(begun) + 1):
            ways = sum(word.startswith(begun) and len(word) == len(begun) + more for word in words)
            assert (0 if state is None else language.ways(state, more)) == ways
        if state is not None:
            assert any(language.ways(state, more) for more in range(2 * n + 2)), f"{begun} leads nowhere"
            assert language.next_symbols(state) == "".join(
                symbol for symbol in language.symbols if language.read(begun + symbol) is not None
            )


def grown(brackets: list[str], n: int) -> set[str]:
    """S → ε | (S)S | [S]S …"""
    if n == 0:
        return {""}
    found = set()
    for inside in range(0, n - 1, 2):
        for a, b in product(grown(brackets, inside), grown(brackets, n - 2 - inside)):
            found |= {f"{opening}{a}{closing}{b}" for opening, closing in brackets}
    return found


GRAMMARS = {
    "local": lambda n: {"".join(word) for word in product("ab", repeat=n) if not re.search("a{3}", "".join(word))},
    "parity": lambda n: {w for w in map("".join, product("ab", repeat=n)) if re.fullmatch("(a|ba*b)*", w)},
    "dyck-1": lambda n: grown(["()"], n) if n % 2 == 0 else set(),
    "dyck-2": lambda n: grown(["()", "[]"], n) if n % 2 == 0 else set(),
    "abc": lambda n: {"a" * (n // 3) + "b" * (n // 3) + "c" * (n // 3)} if n and n % 3 == 0 else set(),
    "copy": lambda n: {2 * "".join(w) for w in product("ab", repeat=n // 2)} if n and n % 2 == 0 else set(),
    "crossed": lambda n: {w + w.translate(VERBS) for w in map("".join, product("ab", repeat=n // 2))},
    "mirror": lambda n: {w + w.translate(VERBS)[::-1] for w in map("".join, product("ab", repeat=n // 2))},
    "shuffle-2": lambda n: {w for k in range(0, n + 1, 2) for w in _shuffled(k, n - k)},
}


def _shuffled(k: int, m: int) -> set[str]:
    """All ways to lay a word of () and one of [] over each other."""
    if k % 2 or m % 2:
        return set()
    return {w for a in grown(["()"], k) for b in grown(["[]"], m) for w in _laid(a, b)}


def _laid(a: str, b: str) -> set[str]:
    if not a or not b:
        return {a + b}
    return {a[0] + w for w in _laid(a[1:], b)} | {b[0] + w for w in _laid(a, b[1:])}


@pytest.mark.parametrize("name", GRAMMARS)
def test_all_words_up_to_eight_symbols_are_those_of_the_grammar(name):
    for n in range(1, 9):
        grammar = GRAMMARS[name](n) if name not in ("crossed", "mirror") or n % 2 == 0 else set()
        found = list(LANGUAGES[name].words(n))
        assert set(found) == grammar
        assert len(found) == len(grammar)


@given(st.sampled_from(NAMES), st.integers(1, 60), st.integers(0, 10**6))
def test_what_is_drawn_is_accepted_and_what_is_damaged_as_the_definition_says(name, n, seed):
    language, source = language_named(name), random.Random(seed)
    if not language.ways(language.start, n):
        with pytest.raises(InputError, match=f"no word of {n} symbols"):
            language.draw(n, source)
        return
    word = language.draw(n, source)
    assert len(word) == n
    assert language.accepts(word)
    assert defined(name, word)
    at, symbol = source.randrange(n), source.choice(language.symbols)
    swapped = [*word]
    swapped[at], swapped[at - 1] = swapped[at - 1], swapped[at]
    for other in (word[:at] + symbol + word[at + 1 :], word[:at] + word[at + 1 :], word[:at] + symbol + word[at:],
                  "".join(swapped), word + word, word[::-1]):  # fmt: skip
        assert language.accepts(other) == defined(name, other)


@pytest.mark.parametrize("name", NAMES)
def test_words_of_a_length_are_drawn_alike(name):
    language = language_named(name)
    n = next(n for n in range(4, 9) if language.ways(language.start, n))
    words, source = list(language.words(n)), random.Random(0)
    draws = [language.draw(n, source) for _ in range(40 * len(words))]
    counts = [draws.count(word) for word in words]
    assert min(counts) > 40 - 5 * 40**0.5
    assert max(counts) < 40 + 5 * 40**0.5


def test_long_words_come_at_once():
    for name in LANGUAGES:
        language = language_named(name)
        n = language.lengths(118, 120)[-1]
        assert language.accepts(language.draw(n, random.Random(0)))


def test_samples_take_all_lengths_in_turn():
    words = draw_words(LANGUAGES["abc"], 1, 9, 6, seed=0)
    assert words == ["abc", "aabbcc", "aaabbbccc"] * 2
    assert draw_words(LANGUAGES["dyck-2"], 5, 20, 30, seed=0) == draw_words(LANGUAGES["dyck-2"], 5, 20, 30, seed=0)
    with pytest.raises(InputError, match="abc has no words of 1 to 2 symbols"):
        draw_words(LANGUAGES["abc"], 1, 2, 1, seed=0)


def test_symbols_that_are_none_and_languages_that_are_none():
    assert not LANGUAGES["copy"].accepts("xx")
    assert not LANGUAGES["dyck-1"].accepts("(]")
    with pytest.raises(InputError, match="no language is called 'klingon': local, parity"):
        language_named("klingon")
    with pytest.raises(InputError, match="dyck-9"):
        language_named("dyck-9")
