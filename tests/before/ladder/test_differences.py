"""Where rungs differ: what is said of a token is what a reader would say."""

import numpy as np
import pytest

from cutaway.before.ladder.differences import FREQUENT, KINDS, PASSAGE, best_gains, bits_by_place, places_of
from cutaway.before.ladder.split_text import Parts, tokenised

COMMON = " ".join(chr(97 + i // 26) + chr(97 + i % 26) for i in range(FREQUENT))  # the most frequent words: aa ab ac …
LEARNT = " ".join([COMMON] * 3) + " whale Ishmael harpoon ship "
HELD_OUT = "x aa whale, aa whale harpoons. Whale saw Ishmael\nShip and I don't\n"


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    parts = Parts((LEARNT,), (" aa ab",), (HELD_OUT,))
    text = tokenised(parts, tmp_path_factory.mktemp("where"))
    return text, places_of(parts, text)


def kinds_of(places, word, nth=0):
    found = [one for one in places.words if one.text == word][nth]
    return {KINDS[kind] for kind in places.kind[found.tokens]}


def test_each_word_has_the_kind_that_a_reader_would_give_it(read):
    _, places = read
    assert kinds_of(places, "aa") == {f"the {FREQUENT} most frequent words"}
    assert kinds_of(places, "whale") == {"rarer, not said before"}
    assert kinds_of(places, "whale", 1) == kinds_of(places, "Whale") == {"rarer, said shortly before"}
    assert kinds_of(places, "harpoons") == kinds_of(places, "don't") == {"never in training"}
    # the first letter is not scored
    between = sum(character in " ,.\n" for character in HELD_OUT)
    assert (places.kind == len(KINDS) - 1).sum() == between
    assert len(places.kind) == len(HELD_OUT) - 1


def test_a_passage_ends(tmp_path):
    far = f"x whale {' '.join(['aa'] * PASSAGE)} whale"
    near = f"x whale {' '.join(['aa'] * (PASSAGE - 1))} whale"
    for held_out, kind in {far: "rarer, not said before", near: "rarer, said shortly before"}.items():
        parts = Parts((LEARNT,), (" aa ab",), (held_out,))
        places = places_of(parts, tokenised(parts, tmp_path / kind.replace(" ", "-")))
        assert kinds_of(places, "whale", 1) == {kind}


def test_capitals_count_within_a_sentence_alone(read):
    _, places = read
    marked = {word.text for word in places.words if places.capital[word.tokens].any()}
    assert marked == {"Ishmael"}  # neither «Whale» behind a full stop, «Ship» on a new line, nor «I»


@pytest.mark.parametrize(("before", "counts"), [(", ", True), (" ", True), ("; ", False), (". ", False), ("\n", False)])
def test_a_name_may_stand_behind_a_comma(tmp_path, before, counts):
    parts = Parts((LEARNT,), (" aa ab",), (f"x aa{before}Ishmael",))
    places = places_of(parts, tokenised(parts, tmp_path))
    assert places.capital.any() == counts


def test_every_word_begins_once(read):
    _, places = read
    begins = [places.first[word.tokens] for word in places.words]
    assert all(first[0] and not first[1:].any() for first in begins)
    assert places.first.sum() == len(places.words)


def test_the_bits_of_all_kinds_add_up_to_those_of_the_text(read):
    text, places = read
    scores = {"a": -np.random.default_rng(0).random(len(places.kind)) * 5, "b": np.full(len(places.kind), -1.0)}
    rows = bits_by_place(places, scores)
    for name, said in scores.items():
        by_kind = sum(row["share"] * row["bits_per_byte"][name] for row in rows if row["what"] in KINDS)
        assert by_kind == pytest.approx(-said.sum() / np.log(2) / text.n_bytes)
    assert sum(row["share"] for row in rows if row["what"] in KINDS) == pytest.approx(1)


def test_the_largest_gains_come_first_and_each_word_once(read):
    _, places = read
    worse = np.full(len(places.kind), -3.0)
    better = worse.copy()
    first, second = (word for word in places.words if word.text == "whale")
    (name,) = (word for word in places.words if word.text == "Ishmael")
    better[first.tokens], better[second.tokens], better[name.tokens] = -2.9, -1.0, -2.5
    found = best_gains(places, better, worse)
    assert [one["word"] for one in found] == ["whale", "Ishmael"]
    assert found[0]["bits"] == pytest.approx(5 * 2 / np.log(2), abs=0.01)
    assert found[0]["before"] == "x aa whale, aa "


def test_tokens_of_several_letters_count_where_they_end(tmp_path):
    learnt = (LEARNT + "the whale ") * 2500  # enough for merged tokens
    parts = Parts((learnt,), (" aa ab",), (" the whale aa",))
    text = tokenised(parts, tmp_path)
    assert len(text.held_out[0]) < 6
    places = places_of(parts, text)
    assert places.n_bytes.sum() == text.n_bytes
    assert (places.kind < len(KINDS) - 1).all()  # « whale» is one token, and its last letter is in a word
    rows = bits_by_place(places, {"a": np.full(len(places.kind), -np.log(2))})  # one bit for each token
    by_kind = sum(row["share"] * row["bits_per_byte"]["a"] for row in rows if row["what"] in KINDS)
    assert by_kind == pytest.approx(len(places.kind) / text.n_bytes)
