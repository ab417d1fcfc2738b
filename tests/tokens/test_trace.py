"""The steps that cut a text: they end where `encode` does, and each is what its algorithm says."""

import json
import math

import pytest
import tokenizers
from helpers.traced_texts import OTHERS, TEXTS
from helpers.varied_texts import varied_texts
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from cutaway.errors import InputError
from cutaway.tokens import Tokenizer, trace_tokens, train_tokenizer
from cutaway.tokens.trace import LONGEST, Tracer, best_cuts

SIZES = {"word": None, "char": None, "byte": None, "bpe": 700, "wordpiece": 800, "unigram": 560}


@pytest.fixture(scope="module")
def tracers() -> dict[str, Tracer]:
    ours = {kind: train_tokenizer(varied_texts(), kind=kind, vocab_size=size) for kind, size in SIZES.items()}
    return {
        name: Tracer(tokenizer) for name, tokenizer in (ours | {name: make() for name, make in OTHERS.items()}).items()
    }


@pytest.mark.parametrize("name", [*SIZES, *OTHERS])
@given(text=TEXTS)
def test_the_last_step_is_what_encode_gives(name: str, text: str, tracers: dict[str, Tracer]):
    tracer = tracers[name]
    trace = tracer.trace(text)
    encoded = tracer.tokenizer.encode_full(text, special=False)
    assert trace.tokens == encoded.tokens
    assert [word.offsets[0] for word in trace.words] == sorted(word.offsets[0] for word in trace.words)
    json.dumps(trace.to_dict())


@given(text=TEXTS)
def test_every_merge_makes_one_of_two_neighbours_and_no_other_ranks_before_it(text: str, tracers: dict[str, Tracer]):
    tracer = tracers["bpe"]
    merges = json.loads(tracer.tokenizer.backend.to_str())["model"]["merges"]
    rank = {tuple(merge): n for n, merge in enumerate(merges)}
    for word in tracer.trace(text).words:
        for before, after in zip(word.steps, word.steps[1:], strict=False):
            assert "".join(before.pieces) == "".join(after.pieces) == word.text
            assert len(after.pieces) == len(before.pieces) - 1
            assert after.rank == rank[after.pair]
            neighbours = zip(before.pieces, before.pieces[1:], strict=False)
            assert after.rank == min(rank.get(pair, math.inf) for pair in neighbours)


@given(text=TEXTS)
def test_unigrams_cuts_add_up_and_the_best_is_the_last(text: str, tracers: dict[str, Tracer]):
    for word in tracers["unigram"].trace(text).words:
        if not hasattr(word.steps[0], "score"):
            continue  # a special token
        scores = [cut.score for cut in word.steps]
        assert scores == sorted(scores)
        assert len({tuple(cut.pieces) for cut in word.steps}) == len(word.steps)
        for cut in word.steps:
            assert "".join(cut.pieces) == word.text
            assert math.isclose(sum(cut.scores), cut.score, rel_tol=1e-9)


@given(
    word=st.text(alphabet="abc", max_size=8),
    scores=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(-9, -1), min_size=1),
)
def test_the_best_cuts_are_those_of_all_cuts(word: str, scores: dict[str, float]):
    def all_cuts(rest: str):
        if not rest:
            yield 0.0, []
        for stop in range(1, len(rest) + 1):
            piece = rest[:stop]
            score = scores.get(piece, -50.0 if stop == 1 else None)
            if score is not None:
                yield from ((score + more, [piece, *pieces]) for more, pieces in all_cuts(rest[stop:]))

    found = best_cuts(word, scores, -50.0, 5)
    best = sorted((score for score, _ in all_cuts(word)), reverse=True)[:5]
    assert [round(score, 9) for score, _ in found] == [round(score, 9) for score in best]


# --- worked examples --------------------------------------------------------------------------------------------------


def test_lowest_is_merged_as_it_was_learnt():
    """Sennrich's example again; see test_train.py for its merges."""
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)
    trace = trace_tokens(train_tokenizer([text], kind="bpe", vocab_size=3 + 256 + 9), "lowest")
    (word,) = trace.words
    assert [(" ".join(step.pieces), step.pair, step.rank) for step in word.steps] == [
        ("l o w e s t", None, None),
        ("l o w es t", ("e", "s"), 0),
        ("l o w est", ("es", "t"), 1),
        ("lo w est", ("l", "o"), 2),
        ("low est", ("lo", "w"), 3),
    ]


def wordpiece(*entries: str) -> Tokenizer:
    vocab = {entry: id for id, entry in enumerate(["[UNK]", *entries])}
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(backend)


def test_wordpiece_takes_the_longest_piece_and_then_the_rest():
    tokenizer = wordpiece("un", "una", "##aff", "##ffable", "##able", "##a", "##b")
    trace = trace_tokens(tokenizer, "Unaffable naïve")
    steps = [[(" ".join(step.pieces), step.rest) for step in word.steps] for word in trace.words]
    assert steps == [
        [("", "unaffable"), ("una", "ffable"), ("una ##ffable", "")],
        [("", "naive"), ("[UNK]", "")],  # nothing begins with n
    ]
    assert [word.offsets for word in trace.words] == [(0, 9), (10, 15)]


def test_wordpiece_gives_up_a_word_for_one_piece():
    (word,) = trace_tokens(wordpiece("un", "##a"), "unaxa").words
    assert [(step.pieces, step.rest) for step in word.steps] == [
        ([], "unaxa"),
        (["un"], "axa"),
        (["un", "##a"], "xa"),
        (["[UNK]"], ""),
    ]


@pytest.mark.parametrize("known", [True, False])
def test_wordpiece_cuts_a_word_of_just_its_limit_and_gives_up_a_longer_one_unseen(known: bool):
    tokenizer = wordpiece("a", "##a")
    for length in (99, 100, 101):
        text = "a" * length if known else "a" * (length - 1) + "x"
        (word,) = trace_tokens(tokenizer, text).words
        assert word.tokens == tokenizer.encode_full(text, special=False).tokens
        seen = [text[n:] for n in range(length + known)] if length <= 100 else [text]
        assert [step.rest for step in word.steps] == seen + ([] if known and length <= 100 else [""])


def test_unigram_weighs_the_ways_to_cut():
    """log p: ▁hug −3, ▁h −4, ug −2, s −2, gs −3, u −5 …: ▁hug s (−5) before ▁h ug s (−8)."""
    vocab = [
        ("<unk>", 0.0),
        ("▁hug", -3.0),
        ("▁h", -4.0),
        ("ug", -2.0),
        ("s", -2.0),
        ("gs", -3.0),
        ("u", -5.0),
        ("g", -6.0),
    ]
    backend = tokenizers.Tokenizer(models.Unigram(vocab, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    (word,) = trace_tokens(Tokenizer(backend), "hugs", n_best=3).words
    assert [(cut.score, cut.pieces, cut.scores) for cut in word.steps] == [
        (-12.0, ["▁h", "u", "gs"], [-4.0, -5.0, -3.0]),
        (-8.0, ["▁h", "ug", "s"], [-4.0, -2.0, -2.0]),
        (-5.0, ["▁hug", "s"], [-3.0, -2.0]),
    ]


# --- what cannot be traced --------------------------------------------------------------------------------------------


def test_what_cannot_be_traced_is_told():
    tokenizer = train_tokenizer(["a text"], kind="bpe", vocab_size=259)
    with pytest.raises(InputError, match=f"a text of {LONGEST + 1:,} characters is too long to show"):
        trace_tokens(tokenizer, "x" * (LONGEST + 1))
    assert len(trace_tokens(tokenizer, "x" * LONGEST).tokens) == LONGEST
    with pytest.raises(InputError, match="with dropout"):
        trace_tokens(tokenizer.with_dropout(0.1), "a text")
    for n in (0, 1025):
        with pytest.raises(InputError, match=f"n_best={n:,} must be 1 … 1,024"):
            trace_tokens(tokenizer, "a text", n_best=n)
    for n in (1, 1024):
        assert trace_tokens(tokenizer, "a text", n_best=n).tokens == trace_tokens(tokenizer, "a text").tokens
    with pytest.raises(InputError, match="surrogates"):
        trace_tokens(tokenizer, "\ud800")
