"""The language of a text: everyday sentences, texts in no known language, and texts without words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.serving.detection import LetterModel, detect

ALL = ["en", "de", "fr"]
SENTENCES = {
    "en": ["Where is the key?", "He reads a newspaper.", "My uncle's farm lies beyond the hill.", "THANK YOU!"],
    "de": [
        "Wo ist der Schlüssel?",
        "Er liest eine Zeitung.",
        "Der Hof meines Onkels liegt hinter dem Hügel.",
        "DANKE!",
    ],
    "fr": ["Où est la clé ?", "Il lit un journal.", "La ferme de mon oncle est derrière la colline.", "C’est ça."],
}


@pytest.mark.parametrize("language", ALL)
def test_everyday_sentences(language):
    for sentence in SENTENCES[language]:
        for text in (sentence, sentence.upper(), f"  {sentence} 12:30 ☃"):
            found = detect(text, ALL)
            assert found[0].language == language, text
            assert [guess.confidence for guess in found] == sorted((guess.confidence for guess in found), reverse=True)
    assert detect(" ".join(SENTENCES[language]), ALL)[0].confidence > 0.99


def test_a_longer_text_is_surer():
    short, long = (
        detect(text, ALL)[0].confidence for text in ("Der Hof", "Der Hof meines Onkels liegt hinter dem Hügel.")
    )
    assert short < long


def test_a_language_that_is_not_asked_for_takes_its_part():
    """French is not English only because German is the one other language."""
    assert detect(SENTENCES["fr"][2], ["en", "de"])[0].confidence < 0.01
    alone, among = detect(SENTENCES["de"][2], ["de"]), detect(SENTENCES["de"][2], ALL)
    assert alone[0] == among[0]


@pytest.mark.parametrize(
    "text",
    [
        "¿Dónde está la estación? No lo sé, pero me gusta mucho esta ciudad.",
        "Waar is het station? Ik weet het niet, maar ik hou van honden.",
        "Где находится станция?",
        "駅はどこですか",
    ],
)
def test_another_language_is_none_of_these(text):
    assert detect(text, ALL)[0].confidence < 0.6


@pytest.mark.parametrize("text", ["", " \n", "123 456", "?!…", "_ _", "☃"])
def test_what_has_no_words_is_in_no_language(text):
    assert [guess.confidence for guess in detect(text, ALL)] == [0, 0, 0]


def test_languages_that_are_not_known_have_no_confidence():
    found = detect(SENTENCES["en"][1], ["xx", "en", "xx", "pt-BR"])
    assert [guess.language for guess in found] == ["en", "xx", "pt-BR"]
    assert [guess.confidence for guess in found[1:]] == [0, 0]
    assert detect("Hello", []) == []


@given(
    st.text(max_size=50) | st.text("aeè'’ ☃\x00\ud800", max_size=9),
    st.lists(st.sampled_from([*ALL, "xx", "", "../en"])),
)
@settings(max_examples=3000, deadline=None)
def test_any_text_has_probabilities(text, languages):
    found = detect(text, languages)
    assert {guess.language for guess in found} == set(languages)
    assert all(0 <= guess.confidence <= 1 for guess in found)
    assert sum(guess.confidence for guess in found) <= 1 + 1e-9


def test_a_long_text_is_looked_at_in_part():
    assert detect(SENTENCES["de"][2] * 100_000, ALL) == detect(SENTENCES["de"][2] * 1_000, ALL)


def test_letters_have_probabilities():
    """Of all letters that may follow, they make up 1: a hundred, of which the model has seen some."""
    text = " abracadabra "
    model, seen = LetterModel(text, 3), sorted(set(text))
    unseen = [chr(0x4E00 + n) for n in range(100 - len(seen))]
    for context in ("", "a", "ab", "br", "xy", "☃a"):
        assert sum(model._p(context, letter) for letter in [*seen, *unseen]) == pytest.approx(1)
    assert model._p("ab", "r") > model._p("b", "r") > model._p("", "r") > model._p("", "x")
