"""What holds for every chain, whatever it has read: counts, rows, votes, masks as attention, and what it draws."""

import math
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from cutaway.before import Chain, MarkovChain, MaskedSkips, Skips, as_attention, informative, marked, sentences
from cutaway.errors import ConfigError, InputError
from cutaway.pictures import HeatMap

WORDS = "a b c d".split()
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=5).filter(
    lambda lines: max(map(len, lines)) > 2
)
MASKS = st.dictionaries(st.sampled_from(WORDS), st.sets(st.sampled_from(WORDS)))
KINDS = st.sampled_from(["first", "second", "skips", "masked"])


def chain_of(kind: str, lines: list[list[str]]) -> Chain:
    if kind == "masked":
        skips = Skips(lines)
        return MaskedSkips(skips, informative(skips, MarkovChain(lines)))
    return Skips(lines) if kind == "skips" else MarkovChain(lines, 1 if kind == "first" else 2)


def masked_by(lines: list[list[str]], masks: dict[str, set[str]]) -> tuple[MaskedSkips, dict[str, set[str]]]:
    """A chain with those of the masks that are about its words."""
    skips = Skips(lines)
    known = set(skips.words)
    masks = {word: kept & known for word, kept in masks.items() if word in known}
    return MaskedSkips(skips, masks), masks


def pasts(chain: Chain, lines: list[list[str]]) -> list[list[str]]:
    return [line[:end] for line in lines for end in range(chain.order, len(line) + 1)]


# --- counting ---------------------------------------------------------------------------------------------------------


@given(TEXTS, st.integers(1, 4))
def test_counts_of_a_chain_are_those_of_its_ngrams(lines, order):
    assume(max(map(len, lines)) > order)
    wanted = Counter(tuple(line[i : i + order + 1]) for line in lines for i in range(len(line) - order))
    chain = MarkovChain(lines, order)
    found = {(*feature, word): n for feature, row in chain.counts.items() for word, n in row.items()}
    assert found == wanted
    assert chain.counts.keys() == {tuple(line[i : i + order]) for line in lines for i in range(len(line) - order + 1)}


@given(TEXTS, st.integers(2, 12))
def test_counts_with_skips_are_those_of_all_pairs_however_far_apart(lines, reach):
    wanted = Counter()
    for line in lines:
        for recent in range(1, len(line) - 1):
            for earlier in WORDS:  # once each, however often it stands there
                if earlier in line[max(0, recent + 1 - reach) : recent]:
                    wanted[earlier, line[recent], line[recent + 1]] += 1
    found = Skips(lines, reach=reach).counts
    assert {(*feature, word): n for feature, row in found.items() for word, n in row.items()} == wanted


@given(TEXTS, st.lists(st.integers(1, 5), min_size=5, max_size=5), KINDS.filter(lambda kind: kind != "masked"))
def test_a_weight_is_how_often_a_sentence_occurs(lines, weights, kind):
    weights = weights[: len(lines)]
    often = [line for line, n in zip(lines, weights, strict=True) for _ in range(n)]
    make = {"first": MarkovChain, "second": lambda *a, **k: MarkovChain(*a, 2, **k), "skips": Skips}[kind]
    assert make(lines, weights=weights).counts == make(often).counts


def test_characters_are_counted_as_words_are():
    assert MarkovChain(["abab"]).row(("a",)) == {"b": 1}


# --- rows and votes ---------------------------------------------------------------------------------------------------


@given(TEXTS, KINDS)
def test_a_row_sums_to_1_or_nothing_ever_followed(lines, kind):
    chain = chain_of(kind, lines)
    matrix = chain.matrix()
    assert matrix.values.shape == (len(chain.counts), len(chain.words))
    assert (matrix.values >= 0).all()
    for feature, total in zip(chain.counts, matrix.values.sum(axis=1), strict=True):
        assert total == pytest.approx(1.0 if chain.counts[feature] else 0.0)


@given(TEXTS, KINDS)
def test_votes_are_the_active_features_times_the_matrix(lines, kind):
    chain = chain_of(kind, lines)
    matrix, features = chain.matrix(), list(chain.counts)
    for past in pasts(chain, lines):
        active = np.array([float(feature in chain.features(past)) for feature in features])
        votes = chain.votes(past)
        assert [votes.get(word, 0.0) for word in chain.words] == pytest.approx((active @ matrix.values).tolist())


@given(TEXTS, KINDS)
def test_probabilities_sum_to_1_unless_the_text_ends(lines, kind):
    chain = chain_of(kind, lines)
    for past in pasts(chain, lines):
        found = chain.probabilities(past)
        assert (not found) or math.fsum(found.values()) == pytest.approx(1.0)
        assert found.keys() == chain.votes(past).keys()


@given(TEXTS)
def test_the_second_order_is_sure_of_at_least_as_much_as_the_first(lines):
    """On the text it has counted: a longer past never makes the text less probable."""
    first, second = (MarkovChain(marked(lines, 2), order) for order in (1, 2))
    text = marked(lines, 2)
    told = [
        math.fsum(sum(chain.log_probabilities(line)[-len(line) + 2 :]) for line in text) for chain in (first, second)
    ]
    assert told[1] >= told[0] - 1e-9


@given(TEXTS, KINDS)
def test_what_was_read_is_never_impossible(lines, kind):
    chain = chain_of(kind, lines)
    assert all(math.isfinite(p) for line in lines for p in chain.log_probabilities(line))
    assert chain.log_probabilities(["z"] * 4) == [-math.inf] * (4 - chain.order)


# --- masks, and the bridge to attention -------------------------------------------------------------------------------


@given(TEXTS, MASKS)
def test_one_hot_query_times_keys_is_the_look_up_of_the_mask(lines, masks):
    chain, masks = masked_by(lines, masks)
    for past in pasts(chain, lines):
        look = as_attention(chain, past)
        kept = [float(word in masks.get(past[-1], ())) for word in dict.fromkeys(past[:-1])]
        assert look.mask().tolist() == kept
        votes = chain.votes(past) if any(kept) else {}
        assert look.votes().tolist() == pytest.approx([votes.get(word, 0.0) for word in chain.words])


@given(TEXTS, MASKS)
def test_softmax_of_it_votes_as_the_masked_chain_does(lines, masks):
    chain, masks = masked_by(lines, masks)
    for past in pasts(chain, lines):
        found, wanted = as_attention(chain, past).attention(), chain.probabilities(past)
        total = float(found.sum())  # below 1 where a word that is kept has an empty row
        assert (total > 0) == bool(wanted)
        if wanted:
            assert (found / total).tolist() == pytest.approx([wanted.get(word, 0.0) for word in chain.words])


def test_soft_scores_let_the_others_speak_too():
    lines = sentences("check the program ran please\ncheck the battery ran down please")
    look = as_attention(MaskedSkips(Skips(lines), {"ran": {"battery", "program"}}), "check the battery ran".split())
    down = MarkovChain(lines).words.index("down")
    shares = [float(look.attention(scale)[down]) for scale in (0.0, 1.0, 5.0, 1000.0)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(2 / 3)  # check and the say ½, battery 1
    assert shares[-1] == 1.0


@given(TEXTS, MASKS)
def test_the_stacked_masks_have_a_row_for_each_word(lines, masks):
    chain, masks = masked_by(lines, masks)
    kept = {word: set() for word in chain.words}
    matrix = chain.mask_matrix()
    for row, column in np.argwhere(matrix.values == 1):
        kept[matrix.rows[row]].add(matrix.columns[column])
    assert kept == {word: masks.get(word, set()) for word in chain.words}


@given(TEXTS, st.floats(0.1, 20))
def test_masks_keep_what_saves_bits_and_nothing_else(lines, bits):
    skips, first = Skips(lines), MarkovChain(lines)
    masks = informative(skips, first, bits)
    for earlier, recent in skips.counts:
        text = Counter()
        for line in lines:
            for place, (word, follows) in enumerate(pairwise(line)):
                if word == recent and earlier in line[:place]:
                    text[follows] += 1
        alone = sum(n * -math.log2(first.row((recent,))[word]) for word, n in text.items())
        together = sum(n * -math.log2(n / text.total()) for n in text.values())
        if abs(alone - together - bits) > 1e-9:
            assert (earlier in masks.get(recent, ())) == (alone - together > bits)


# --- what is drawn ----------------------------------------------------------------------------------------------------


def all_texts(chain: Chain, past: list[str], probability: float = 1.0) -> dict[tuple[str, ...], float]:
    """Every text that can come of `past`, with its probability."""
    found = chain.probabilities(past)
    if not found:
        return {tuple(past): probability}
    texts = {}
    for word, p in found.items():
        texts |= all_texts(chain, [*past, word], probability * p)
    return texts


ENDING = "show me my files\nshow me my photos please\nfind my old photos\nshow old files please"


@pytest.mark.parametrize("kind", ["first", "second", "skips", "masked"])
def test_texts_come_as_often_as_their_probability_says(kind):
    lines = marked(sentences(ENDING), 1 if kind == "first" else 2)
    chain = chain_of(kind, lines)
    start = lines[0][: chain.order]
    expected = all_texts(chain, start)
    assert math.fsum(expected.values()) == pytest.approx(1.0)
    n = 4000
    drawn = Counter(tuple(chain.generate(start, seed=seed)) for seed in range(n))
    assert drawn.keys() <= expected.keys()
    assert scipy.stats.chisquare([drawn[text] for text in expected], [n * p for p in expected.values()]).pvalue > 1e-3
    for text, probability in expected.items():
        assert math.exp(math.fsum(chain.log_probabilities(text))) == pytest.approx(probability)


@given(TEXTS, KINDS, st.integers())
def test_a_seed_draws_the_same_text_again_and_only_what_was_seen(lines, kind, seed):
    chain = chain_of(kind, lines)
    start = max(lines, key=len)[: chain.order]
    text = chain.generate(start, seed=seed, limit=20)
    assert text == chain.generate(start, seed=seed, limit=20)
    assert text[: chain.order] == start
    assert len(text) <= chain.order + 20
    assert all(math.isfinite(p) for p in chain.log_probabilities(text))
    assert len(text) == chain.order + 20 or not chain.votes(text)


def test_different_seeds_draw_different_texts():
    chain = MarkovChain(marked(sentences(ENDING)))
    assert len({tuple(chain.generate(["<sos>"], seed=seed)) for seed in range(50)}) > 5


# --- texts, and what is too little ------------------------------------------------------------------------------------


def test_a_line_is_a_sentence_without_capitals_and_punctuation():
    text = "Don't run, «please»!\r\n\n  – Why not?  \n…\nOh: well-being (1 2)"
    assert sentences(text) == [["don't", "run", "please"], ["why", "not"], ["oh", "well-being", "1", "2"]]


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), (" \n\t", "is empty"), ("… – !", "has no words")])
def test_a_text_without_words_is_refused_by_name(text, said):
    with pytest.raises(InputError, match=f"notes.txt {said}"):
        sentences(text, "notes.txt")


@pytest.mark.parametrize(("make", "needs"), [(MarkovChain, 2), (lambda lines: MarkovChain(lines, 2), 3), (Skips, 3)])
def test_one_word_is_too_little_and_enough_when_its_ends_are_marked(make, needs):
    lines = sentences("Hello")
    with pytest.raises(InputError, match=f"needs a sentence of {needs} words, and the longest has 1"):
        make(lines)
    chain = make(marked(lines, needs - 1))
    start = ["<sos>"] * (needs - 1)
    assert chain.generate(start) == [*start, "hello", "<eos>"]
    assert "hello" in chain.table()


@pytest.mark.parametrize("kind", ["first", "second", "skips", "masked"])
def test_ten_words_are_enough(kind):
    chain = chain_of(kind, sentences("one two three four five six seven eight nine ten"))
    assert chain.generate(["one", "two"])[-1] == "ten"


def test_what_makes_no_chain_is_said():
    with pytest.raises(InputError, match=r"this is a text: .* `sentences\(text\)`"):
        MarkovChain("show me my files")
    for nothing in ([], [[]]):
        with pytest.raises(InputError, match="no words to count"):
            MarkovChain(nothing)
    with pytest.raises(ConfigError, match="order=0"):
        MarkovChain([["a", "b"]], 0)
    with pytest.raises(ConfigError, match="reach=1"):
        Skips([["a", "b", "c"]], reach=1)
    for masks in ({"show": {"batery"}}, {"batery": {"show"}}):
        with pytest.raises(InputError, match="'batery' stands in a mask"):
            MaskedSkips(Skips(sentences("show me my files")), masks)
    with pytest.raises(InputError, match="2 weights for 1 sentences"):
        MarkovChain([["a", "b"]], weights=[1, 1])
    for weight in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="positive numbers"):
            MarkovChain([["a", "b"]], weights=[weight])


def test_what_cannot_be_started_from_is_said():
    chain = MarkovChain(sentences("show me my files"), 2)
    with pytest.raises(InputError, match="order 2 needs 2 words to start from: 1 given"):
        chain.generate(["show"])
    with pytest.raises(InputError, match="never saw 'your'"):
        chain.generate(["show", "your"])
    masked = MaskedSkips(Skips(sentences("show me my files")), {})
    with pytest.raises(InputError, match="needs 2 words to look at: 1 given"):
        as_attention(masked, ["show"])


def test_a_bare_word_is_no_feature():
    lines = sentences("check the battery\ncheck the program")
    assert MarkovChain(lines).row(("the",)) == {"battery": 0.5, "program": 0.5}
    with pytest.raises(InputError, match=re.escape("'the' is a text: a feature is a tuple of words, as ('the',)")):
        MarkovChain(lines).row("the")
    with pytest.raises(InputError, match=re.escape("as ('check', 'the')")):
        MarkovChain(lines, 2).row("check the")


def test_chains_do_without_torch_and_the_bridge_is_no_module():
    """Whichever is imported first: the module has the name of its function."""
    code = "import cutaway.before.markov.as_attention, sys; from cutaway.before import as_attention; "
    code += "sys.exit('torch' in sys.modules or not callable(as_attention))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_long_line_is_counted_within_reach():
    line = [str(i % 300) for i in range(3000)]
    chain = Skips([line], reach=5)
    assert len(chain.counts) == 4 * 300  # each word with the four before it; the first ones are met again
    assert max(map(len, chain.counts.values())) == 1
    assert len(MarkovChain([line]).counts) == 300


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_table_has_each_feature_and_what_follows():
    lines = sentences("show me my files please\nshow me my photos please\nshow me my photos please")
    assert MarkovChain(lines).table() == (
        "Markov chain of order 1: 6 words, 6 features\n"
        "  show  →  me 1\n"
        "    me  →  my 1\n"
        "    my  →  photos 0.67  files 0.33\n"
        "photos  →  please 1\n"
        " files  →  please 1\n"
        "please  →  nothing follows"
    )
    assert MarkovChain(lines).table(rows=3, followers=1) == (
        "Markov chain of order 1: 6 words, 6 features\n"
        "show  →  me 1\n"
        "  me  →  my 1\n"
        "  my  →  photos 0.67  and 1 more\n"
        "and 3 more features"
    )


def test_a_word_is_text_whatever_it_contains():
    chain = MarkovChain([["\x1b[2J", "ü"]])
    assert "\x1b" not in chain.table()
    assert "\\x1b[2J  →  ü 1" in chain.table()
    assert chain.matrix().rows == ("\\x1b[2J", "ü")


def test_matrices_are_drawn_as_heat_maps():
    lines = sentences("check the program log and it ran please\ncheck the battery log and it ran down please")
    skips = Skips(lines)
    masked = MaskedSkips(skips, informative(skips, MarkovChain(lines)))
    ran = [(word, "ran") for word in skips.words]
    picture = HeatMap(*masked.matrix(ran, ["down", "please"]))
    assert picture.rows[2] == "program … ran"
    assert picture.values[2].tolist() == [0, 1]
    assert "battery … ran       1      0" in picture.text()
    assert "most recent word «ran» → earlier word «program»" in HeatMap(*masked.mask_matrix()).sentence()
    for chain in (MarkovChain(lines), MarkovChain(lines, 2), skips):
        assert HeatMap(*chain.matrix()).svg().startswith("<?xml")


def test_a_matrix_that_fills_the_memory_is_refused():
    chain = MarkovChain([[str(i) for i in range(5000)]])
    with pytest.raises(InputError, match="5,000 × 5,000 is too large: choose"):
        chain.matrix()
    assert chain.matrix([("7",)]).values[0, 8] == 1
    assert chain.matrix([("7",)], ["8"]).values.tolist() == [[1]]


def test_the_story_of_the_room_is_true():
    import cutaway.before as room

    names = dict(vars(room))
    shown = [re.split("  +", line.strip()) for line in room.__doc__.splitlines() if line.startswith("       ")]
    checked = 0
    for code, *result in shown:
        if result and result[0].startswith(("{", "[")):
            assert eval(code, names) == eval(result[0])
            checked += 1
        else:
            exec(code, names)
    assert (checked, len(shown)) == (5, 8)
