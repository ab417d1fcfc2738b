"""Paragraphs → sentences: nothing is lost, and abbreviations, ordinals and quotes part nothing."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.decoding.sentences import cut_sentence, split_sentences

# | stands where a sentence ends
SPLIT = [
    "Dr. Smith went home.| He slept.| Mrs. Jones did not.",
    "It costs 3.14 dollars.| In 1999. |No: it was in 1998.".replace(" |", "| "),
    "J. R. R. Tolkien wrote it.| George W. Bush did not.",
    "He lives in the U.S. and in the U.K. as well.| The U.S. Army left the U.S.| The end.",
    "Use tools, e.g. Emacs, i.e. Lisp.| See Fig. 3 and vol. 2.| No. 5 is alive.| No.| Never.",
    '"Really?" she said.| "Yes!"| He left.| (He did.)| Yahoo! is old.',
    "Wait...| What?!| Yes… perhaps.| Well.",
    "1. The first item.| The rest.",
    "Am 3. Mai 2020 kam Dr. Weiß.| Der 2. Weltkrieg war vorbei.| Im 19. Jahrhundert nicht.",
    "Es gibt z. B. Berlin, d. h. Städte, u. a. Köln.| Vgl. Abs. 3 bzw. Art. 5 des Gesetzes.| Nr. 7 lebt.| Ende.",
    "Ludwig XIV. regierte lange.| Er kam am 3. 5. 1643.| „Ja.“| »Nein«, sagte sie.| ‚Doch!‘| Gut.",
    "M. Dupont est là !| Pourquoi ?| « Oui. »| Elle part, p. ex. Mme Curie.| C'est tout.",
    "你好。|我很好！|是吗？|对",
    "שלום עולם.| מה שלומך?| טוב",
    "one line\n|another line.\n\n|  A third. ",
]


@pytest.mark.parametrize("marked", SPLIT)
def test_sentences_end_where_they_should(marked):
    found = split_sentences(marked.replace("|", ""))
    assert [part.strip() for part in found] == [part.strip() for part in marked.split("|")]


@given(st.text(st.sampled_from("aB1 .!?…\"'»«“)\n\r\t\u00a03,;。\u0000🙂é"), max_size=60))
def test_the_parts_are_the_text(text):
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert all(parts)


def by_letters(text: str, n: int) -> int | None:
    """A tokenizer to which every letter is a token, and spaces are none."""
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    return places[n] if len(places) > n else None


@given(st.text(st.sampled_from("ab ,;.\n"), max_size=80), st.integers(1, 9))
def test_pieces_are_the_text_and_fit(text, budget):
    pieces = cut_sentence(text, budget, by_letters)
    assert "".join(pieces) == text
    assert all(by_letters(piece, budget) is None for piece in pieces)


def test_pieces_fit_alone():
    """Also where the last letter of a text takes a token more than inside of it."""

    def dear(text: str, n: int) -> int | None:
        return len(text) - 1 if n == len(text) else by_letters(text, n)

    pieces = cut_sentence("x" * 50, 5, dear)
    assert "".join(pieces) == "x" * 50
    assert all(dear(piece, 5) is None for piece in pieces)


def test_a_long_sentence_is_cut_behind_a_clause_else_at_a_space_else_anywhere():
    assert cut_sentence("one two, three four", 8, by_letters) == ["one two, ", "three ", "four"]
    assert cut_sentence("one two three", 8, by_letters) == ["one two ", "three"]
    assert cut_sentence("abcdefgh", 3, by_letters) == ["abc", "def", "gh"]
    assert cut_sentence("abc", 3, by_letters) == ["abc"]
    assert cut_sentence("", 3, by_letters) == []


@pytest.mark.parametrize("text", ["a", ".", " ", "\n", ". ", '."', " \r", "a. ", ". »", "a "], ids=repr)
def test_a_megabyte_takes_seconds(text):
    text = text * (10**6 // len(text))
    begin = time.perf_counter()
    assert "".join(split_sentences(text)) == text
    assert time.perf_counter() - begin < 60  # a hang guard: it takes one second, and hours if it is quadratic


def test_a_megabyte_without_a_space_is_cut():
    begin = time.perf_counter()
    pieces = cut_sentence("x" * 10**6, 128, by_letters)
    assert len(pieces) == -(-(10**6) // 128)
    assert time.perf_counter() - begin < 60


TITLES = """mr mrs ms dr prof st gen col sgt capt lt cmdr rev hon sen rep gov pres messrs mt ft
    hr hrn fr frl dipl ing med phil jur mag mme mlle mgr mm me pr
    bzw vgl ca ggf evtl sog inkl exkl zzgl bspw geb gest verh hrsg hl z.b d.h u.a u.u i.d.r o.g s.o v.a z.t z.zt
    e.g i.e cf vs viz al approx ex p.ex c.-à-d""".split()
COUNTED = """no nos nr nrn art abs kap bd bde fig figs abb tab vol vols p pp s sec ch chap eq ziff zi § par ann
    jan feb mar apr jun jul aug sep sept oct nov dec okt dez janv févr avr juil déc tel tél str av bd n""".split()
BEGINNERS = """the a an this that these those it its he she they we you i there here then but and so however if when
    while after before in on at for as his her their our my what who where why how not no yes
    der die das ein eine es er sie wir ihr ich dies diese dieser dieses da dann aber und doch wenn als nach vor im in
    il elle ils elles on nous vous je ce cette ces un une mais et puis quand si dans c'est""".split()


@pytest.mark.parametrize("word", TITLES)
def test_no_sentence_ends_behind_an_abbreviation_that_a_name_follows(word):
    for spelled in (word, word.capitalize()):
        text = f"We saw {spelled}. Miller. It rained."
        assert split_sentences(text) == [f"We saw {spelled}. Miller. ", "It rained."]


@pytest.mark.parametrize("word", COUNTED)
def test_no_sentence_ends_behind_an_abbreviation_that_a_number_follows(word):
    assert len(split_sentences(f"We saw {word}. 5 there. It rained.")) == 2
    if len(word) > 1 and word.isalpha():
        assert len(split_sentences(f"We saw {word}. Rain fell. It rained.")) == 3


@pytest.mark.parametrize("word", BEGINNERS)
def test_a_sentence_begins_with_a_word_that_usually_begins_one(word):
    begins = word[:1].upper() + word[1:]
    assert len(split_sentences(f"He lives in the U.S. {begins} rained.")) == 2
    assert len(split_sentences("He lives in the U.S. Capital rained.")) == 1
