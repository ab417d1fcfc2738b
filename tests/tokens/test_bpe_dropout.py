"""BPE-dropout with a seed: the same cuts every time, as often as the paper says, and all of the same text."""

import json
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tokenizers
from helpers.sentencepiece_models import from_gguf
from helpers.traced_texts import OTHERS, TEXTS
from helpers.varied_texts import FRAGMENTS, varied_texts
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from cutaway.errors import InputError
from cutaway.tokens import Tokenizer, train_tokenizer
from cutaway.tokens.bpe_dropout import DRAWS, LONGEST, BPEDropout

KINDS = {
    "bpe": lambda: train_tokenizer(varied_texts(), kind="bpe", vocab_size=700, tags=["de"]),
    "lowercase": lambda: train_tokenizer(varied_texts(), kind="bpe", vocab_size=700, lowercase=True),
    "pieces": from_gguf,  # the whole text is one word; what is no piece is bytes
    **{name: OTHERS[name] for name in ("suffix", "prefix", "fused", "whole")},
}
WORD = " quick"


@cache
def made(kind: str) -> Tokenizer:
    return KINDS[kind]()


def ways(dropout: BPEDropout, texts: list[str], first: int = 0) -> list[list[list[int]]]:
    """For each text all its cuts."""
    ids, lengths = dropout.cut(texts, first)
    assert len(lengths) == len(texts) * dropout.cuts
    cuts = [part.tolist() for part in np.split(ids, np.cumsum(lengths))]
    assert cuts.pop() == []
    return [cuts[i : i + dropout.cuts] for i in range(0, len(cuts), dropout.cuts)]


def read(tokenizer: Tokenizer, ids: list[int]) -> str:
    if tokenizer.backend.decoder is not None:
        return tokenizer.decode(ids, skip_special=False)
    return "".join(tokenizer.token(id) for id in ids).replace("</w>", "").replace("@@", "")


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS | st.sampled_from(["<2de> abana <s>", "ÄPFEL Äpfel"]), max_size=4))
def test_without_dropout_a_cut_is_what_encode_gives(kind: str, texts: list[str]):
    tokenizer = made(kind)
    for text, cuts in zip(texts, ways(BPEDropout(tokenizer, 0.0, 2), texts), strict=True):
        assert cuts == [tokenizer.encode(text, special=False)] * 2


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, max_size=4), p=st.floats(0, 0.99), seed=st.integers(0, 2**64 - 1))
def test_every_cut_is_the_same_text(kind: str, texts: list[str], p: float, seed: int):
    tokenizer = made(kind)
    for text, cuts in zip(texts, ways(BPEDropout(tokenizer, p, 3, seed), texts), strict=True):
        assert {read(tokenizer, cut) for cut in cuts} == {read(tokenizer, tokenizer.encode(text, special=False))}


@given(texts=st.lists(TEXTS, min_size=1, max_size=6), cuts=st.integers(1, 5), first=st.integers(0, 2**50))
def test_a_cut_depends_on_its_text_and_number_and_on_nothing_before(texts: list[str], cuts: int, first: int):
    together = BPEDropout(made("bpe"), 0.3, cuts, seed=3)
    found = ways(together, texts, first)
    assert ways(together, texts, first) == found  # nothing is drawn twice
    for i, text in enumerate(texts):
        assert ways(BPEDropout(made("bpe"), 0.3, cuts, seed=3), [text], first + i) == [found[i]]


def test_another_seed_another_number_and_another_cut_are_cut_in_other_ways():
    text = " ".join(FRAGMENTS)
    found = ways(BPEDropout(made("bpe"), 0.1, 4, seed=1), [text, text])
    found += ways(BPEDropout(made("bpe"), 0.1, 4, seed=2), [text, text])
    assert len({tuple(cut) for cuts in found for cut in cuts}) == 16
    all_draws = [
        sorted(ways(BPEDropout(made("bpe"), 0.3, DRAWS, seed), ["supercalifragilistic"])[0]) for seed in (1, 2)
    ]
    assert all_draws[0] != all_draws[1]


def test_special_tokens_are_never_cut():
    tokenizer = made("bpe")
    (cuts,) = ways(BPEDropout(tokenizer, 0.9, 20), ["quick<2de>quick<eos>"])
    special, wanted = set(tokenizer.special_ids().values()), [tokenizer.tag_id("de"), tokenizer.eos_id]
    assert all([id for id in cut if id in special] == wanted for cut in cuts)


def test_a_word_that_the_file_looks_up_is_merged_once_merges_are_dropped():
    entries = {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.BPE(entries, [("a", "b")], ignore_merges=True)))
    assert ways(BPEDropout(tokenizer, 0.0, 2), ["abc"]) == [[[4], [4]]]
    cuts = {tuple(cut) for cut in ways(BPEDropout(tokenizer, 0.5, 50), ["abc"])[0]}
    assert cuts == {(3, 2), (0, 1, 2)}
    assert {tuple(tokenizer.with_dropout(0.5).encode("abc")) for _ in range(50)} == cuts


def test_what_stands_behind_an_unknown_letter_is_cut():
    tokenizer = made("fused")
    text = next(text for text in ("quick", "jumps", "lazy") if tokenizer.encode(text)[0] == tokenizer.unk_id)
    assert len({tuple(cut) for cut in ways(BPEDropout(tokenizer, 0.5, 20), [text])[0]}) > 1


def test_what_is_too_long_to_be_a_word_stays_as_it_is():
    text = "quick" * (LONGEST // 5 + 1)  # full of merges
    (cuts,) = ways(BPEDropout(made("bpe"), 0.5, 3), [text])
    assert cuts == [made("bpe").encode(text, special=False)] * 3


# --- how often --------------------------------------------------------------------------------------------------------


def chances(pieces: tuple[str, ...], ranks: dict[tuple[str, ...], int], p: float) -> Counter[tuple[str, ...]]:
    """Algorithm 1 of the paper, all ways at once: the k-th best merge is done if those before it are dropped."""
    found: Counter[tuple[str, ...]] = Counter()
    possible = sorted((ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks)
    for k, (_, at) in enumerate(possible):
        after = (*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :])
        for cut, chance in chances(after, ranks, p).items():
            found[cut] += (1 - p) * p**k * chance
    found[pieces] += p ** len(possible)
    return found


def counts(found: list[list[int]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(made("bpe").token(id) for id in cut) for cut in found)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("word", [WORD, " aaaaaa", "jumps"])
def test_cuts_are_as_frequent_as_the_paper_says(word: str, p: float):
    model: dict[str, Any] = json.loads(made("bpe").backend.to_str())["model"]
    ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
    expected = chances(tuple(word.replace(" ", "Ġ")), ranks, p)
    assert len(expected) > 3
    n = 20_000
    found = counts(ways(BPEDropout(made("bpe"), p, n), [word])[0])
    assert set(found) <= set(expected)
    for cut, chance in expected.items():
        assert abs(found[cut] / n - chance) < 4 * (chance * (1 - chance) / n) ** 0.5 + 1e-9, cut


def test_the_library_drops_about_as_often():
    """It retries where a merge that is no longer possible was not dropped: a little less is dropped."""
    n, library = 4000, made("bpe").with_dropout(0.1)
    theirs = counts([library.encode(WORD, special=False) for _ in range(n)])
    ours = counts(ways(BPEDropout(made("bpe"), 0.1, n), [WORD])[0])
    assert sum(abs(ours[cut] - theirs[cut]) for cut in ours | theirs) / 2 / n < 0.1


def test_places_of_a_word_are_cut_independently():
    """In one text as in two: both whole as often as by chance."""
    n, whole = 4000, made("bpe").encode(WORD, special=False)
    alone, twice = ways(BPEDropout(made("bpe"), 0.2, n), [WORD + WORD, WORD])[::-1]
    share = alone.count(whole) / n
    assert 0.1 < share < 0.9
    assert abs(twice.count(whole * 2) / n - share**2) < 0.03
    texts = ways(BPEDropout(made("bpe"), 0.2, 1), [WORD] * n)
    assert abs(sum(cut == whole for (cut,) in texts) / n - share) < 4 * (share * (1 - share) / DRAWS) ** 0.5


def test_what_cannot_be_dropped_is_told():
    with pytest.raises(InputError, match="only BPE has merges to drop"):
        BPEDropout(train_tokenizer(varied_texts(), kind="wordpiece", vocab_size=800), 0.1, 2)
    with pytest.raises(InputError, match="no merges to drop"):
        BPEDropout(train_tokenizer(varied_texts(), kind="byte"), 0.1, 2)
    with pytest.raises(InputError, match="cuts=0 must be 1 or more"):
        BPEDropout(made("bpe"), 0.1, 0)
