"""Heads that look at whom a pronoun means: hand-set ones do, in whatever order the candidates are named."""

from itertools import combinations

import pytest
import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.tiny_models import tiny
from helpers.winograd_sentences import TIRED, WIDE, WORDS
from tokenizers import AddedToken
from torch import Tensor

from cutaway.errors import InputError
from cutaway.evaluation.winograd import Schema, winograd
from cutaway.inside.circuits.coreference import _read, accuracy_without_heads, coreference_heads
from cutaway.model.attention import Attention
from cutaway.model.tap import edit


@pytest.mark.parametrize("where", ["pronoun", "end", None])
@pytest.mark.parametrize("name", ["bert", "roformer", "gpt2", "llama"])
def test_a_head_that_looks_at_the_right_candidate_prefers_it(name: str, where: str | None) -> None:
    """[CLS] The animal didn't cross the street because it was too tired. [SEP]"""
    model, tokenizer = tiny(name), bert_tokenizer(WORDS, AddedToken("[MASK]"))
    side = "encoder" if name in ("bert", "roformer") else "decoder"
    query = 8 if where == "pronoun" or (where is None and side == "encoder") else 11

    def by_hand(pattern: Tensor) -> Tensor:
        new = torch.full_like(pattern, 1e-3)
        new[:, 1, query, 5:7] = 0.5  # the street
        new[:, 2, query, 1:3] = 0.5  # the animal
        return new

    with edit(model, {f"{side}.1.attention.pattern": by_hand}):
        tired = coreference_heads(model, tokenizer, [TIRED], where=where)
        wide = coreference_heads(model, tokenizer, [WIDE], where=where)
        both = coreference_heads(model, tokenizer, [TIRED, WIDE], where=where)
        turned = Schema(TIRED.before, TIRED.after, TIRED.candidates[::-1], 1, "it")
        again = coreference_heads(model, tokenizer, [turned], where=where)
    heads = [f"{side}.1.attention.{head}" for head in range(4)]
    assert [tired.prefers.scores[head] for head in heads] == [0.5, 0, 1, 0.5]
    assert [wide.prefers.scores[head] for head in heads] == [0.5, 1, 0, 0.5]
    assert [both.prefers.scores[head] for head in heads] == [0.5] * 4
    assert tired.looks.scores[heads[2]] == 1
    assert again.to_dict() == tired.to_dict()


def test_a_name_is_a_whole_word_and_only_a_possessive_pronoun_loses_its_s() -> None:
    """[CLS] Joanna told Ann that it's late. [SEP]"""
    tokenizer = bert_tokenizer("[UNK] Joanna told Ann that it's it late. his book".split(), AddedToken("[MASK]"))
    names = ("Ann", "Joanna")
    late = _read(tokenizer, Schema("Joanna told Ann that ", "'s late.", names, 0, "it"), "end")
    assert late is not None
    assert late.candidates == [[3], [1]]
    assert late.ids == tokenizer.encode("Joanna told Ann that it's late.")
    book = _read(tokenizer, Schema("Joanna told Ann that ", "'s book late.", names, 1, "His"), "end")
    assert book is not None
    assert book.ids == tokenizer.encode("Joanna told Ann that His book late.")
    assert _read(tokenizer, Schema("Joanna told ", " late.", names, 0, "it"), "end") is None


def test_what_names_nobody_is_skipped_and_counted() -> None:
    model, tokenizer = tiny("bert"), bert_tokenizer(WORDS, AddedToken("[MASK]"))
    unknown = Schema(TIRED.before, TIRED.after, ("a cat", "the street"), 1, "it")
    hidden = Schema(TIRED.before, TIRED.after, TIRED.candidates, 0)
    found = coreference_heads(model, tokenizer, [TIRED, unknown, hidden])
    assert (found.n, found.skipped) == (1, 2)
    with pytest.raises(InputError, match="none of the 1 schemas"):
        coreference_heads(model, tokenizer, [hidden])
    with pytest.raises(InputError, match="neither 'pronoun' nor 'end'"):
        coreference_heads(model, tokenizer, [TIRED], where="start")


def test_without_heads_answers_are_those_of_a_model_whose_heads_write_nothing() -> None:
    """Of eight heads four are taken away, so that the four drawn at random are the others."""
    tokenizer = bert_tokenizer(WORDS, AddedToken("[MASK]"))
    pairs = [pair for pair in combinations(WORDS[1:], 2) if "it" not in pair]
    schemas = [Schema(TIRED.before, TIRED.after, pair, 0, "it") for pair in pairs]
    taken = [(0, 0), (0, 3), (1, 1), (1, 2)]
    others = [(layer, head) for layer in range(2) for head in range(4) if (layer, head) not in taken]

    def accuracy(gone: list[tuple[int, int]]) -> float:
        model = tiny("bert")
        for layer, head in gone:
            output = model.get_submodule(f"encoder.{layer}.attention.output")
            output.weight.data[:, 6 * head : 6 * head + 6] = 0  # type: ignore[union-attr, index]
        return winograd(model, tokenizer, schemas).scores["accuracy"]

    expected = [accuracy(gone) for gone in ([], taken, others)]
    assert len(set(expected)) == 3
    heads = [f"encoder.{layer}.attention.{head}" for layer, head in taken]
    found = accuracy_without_heads(tiny("bert"), tokenizer, schemas, heads, draws=2)
    assert [found.whole, found.without, *found.without_random] == [*expected, expected[2]]


def test_heads_that_write_nothing_do_not_matter() -> None:
    model, tokenizer = tiny("bert"), bert_tokenizer(WORDS, AddedToken("[MASK]"))
    schemas = [TIRED, WIDE] * 2
    for part in model.modules():
        if isinstance(part, Attention):
            part.output.weight.data.zero_()
    found = accuracy_without_heads(
        model, tokenizer, schemas, ["encoder.0.attention.1", "encoder.1.attention.3"], draws=2
    )
    assert found.whole == found.without == found.without_random[0]
    assert len(found.without_random) == 2
    assert found.n == 4
    several = [f"encoder.{layer}.attention.{head}" for layer in (0, 1) for head in range(3)]
    with pytest.raises(InputError, match="6 heads, and only 2 others to compare with"):
        accuracy_without_heads(model, tokenizer, schemas, several)
