"""Word alignments: rows sum to 1 over the words, and a model that spells backwards looks backwards."""

import pytest
import tokenizers
import torch
from helpers.alignment_translator import translator
from helpers.tokenizers_of_bytes import byte_level
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from cutaway.decoding.alignment import align, joined_alignment, word_spans
from cutaway.decoding.translate import translate
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer
from cutaway.toys.reversal import TOKENS, train_reversal

TEXTS = ["I ate an apple.", "Hi", "The quick brown fox don't jump, over it!", "naïve café 🙂 שלום"]


@pytest.fixture
def spelling() -> tuple[EncoderDecoderModel, Tokenizer]:
    """A model that turns `a b c` into `c b a`, and its tokenizer."""
    backend = tokenizers.Tokenizer(models.WordLevel({token: id for id, token in enumerate(TOKENS)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(cleanup=False)
    backend.add_special_tokens(list(TOKENS[:3]))
    return train_reversal(steps=600), Tokenizer(backend)


def test_a_model_that_spells_backwards_looks_backwards(spelling):
    model, tokenizer = spelling
    words = ["t r a n s f o r m", "c u t a w a y", "a b"]
    for word, found in zip(words, translate(model, tokenizer, words, align=True), strict=True):
        n = len(word.split())
        assert found.text == word[::-1]
        assert found.alignment.pharaoh() == " ".join(f"{n - 1 - i}-{i}" for i in range(n))
        for (a, b), (c, d), weight in found.alignment.links():
            assert word[a:b] == found.text[c:d]
            assert 0.3 < weight <= 1


def test_rows_sum_to_one_over_the_words():
    found = align(translator(), byte_level(), TEXTS, TEXTS[::-1], rows=3)
    for one, source, target in zip(found, TEXTS, TEXTS[::-1], strict=True):
        assert one.matrix.shape == (len(word_spans(target)), len(word_spans(source)))
        assert torch.allclose(one.matrix.sum(dim=1), torch.ones(len(one.target_words)))
        assert len(one.pharaoh().split()) == len(one.target_words)


@pytest.mark.parametrize("tag", [0, 5])
def test_words_add_up_tokens(tag):
    """Against the pattern itself: an alignment of tokens, put together by hand."""
    from cutaway.model.tap import watch

    model, tokenizer = translator(), byte_level()
    source, target = "apple quick", "brown fox"
    read, said = (tokenizer.encode_full(text, special=False) for text in (source, target))
    with torch.no_grad(), watch(model, "decoder.0.cross.pattern") as seen:
        model(torch.tensor([[tag, *read.ids, 2]]), torch.tensor([[1, *said.ids[:-1]]]))
    pattern = seen["decoder.0.cross.pattern"][0].mean(dim=0)[:, 1:-1]
    second = torch.tensor([text_of.strip() == "" or start >= 5 for text_of, (start, _) in _texts(source, read)])
    behind = torch.tensor([start >= 5 for _, (start, _) in _texts(target, said)])
    rows = torch.stack([pattern[~behind].mean(dim=0), pattern[behind].mean(dim=0)])
    expected = torch.stack([rows[:, ~second].sum(dim=1), rows[:, second].sum(dim=1)], dim=1)
    (found,) = align(model, tokenizer, [source], [target], tag=tag, layer=0)
    assert torch.allclose(found.matrix, expected / expected.sum(dim=1, keepdim=True), atol=1e-6)


def _texts(text, encoded):
    return [(text[a:b], (a, b)) for a, b in encoded.offsets]


def test_each_pair_is_aligned_as_if_alone():
    model, tokenizer = translator(), byte_level()
    together = align(model, tokenizer, TEXTS, TEXTS[::-1])
    for source, target, one in zip(TEXTS, TEXTS[::-1], together, strict=True):
        (alone,) = align(model, tokenizer, [source], [target])
        assert torch.allclose(alone.matrix, one.matrix, atol=1e-5)


@given(st.text(max_size=30))
def test_words_are_all_that_can_be_seen(text):
    covered = {place for start, stop in word_spans(text) for place in range(start, stop)}
    assert covered == {place for place, letter in enumerate(text) if not letter.isspace()}


def test_marks_stand_alone_unless_inside_a_word():
    text = '"Don\'t," 3.14 नमस्ते!'
    assert [text[a:b] for a, b in word_spans(text)] == ['"', "Don't", ",", '"', "3.14", "नमस्ते", "!"]


def test_a_text_has_a_block_for_each_sentence():
    model, tokenizer = translator(), byte_level()
    pairs = [("I ate.", "Hi, you"), ("", "lost"), ("Yes", ""), ("the fox", "a")]
    parts = [align(model, tokenizer, [source], [target])[0] for source, target in pairs]
    whole, source, target = joined_alignment("", "", parts), 0, 0
    assert [block.shape for block in whole.blocks] == [(3, 3), (1, 0), (0, 1), (1, 2)]
    assert torch.equal(whole.matrix, torch.block_diag(*(part.matrix for part in parts)))
    expected = []
    for part in parts:
        for pair in part.pharaoh().split():
            i, j = map(int, pair.split("-"))
            expected.append(f"{source + i}-{target + j}")
        source, target = source + len(part.source_words), target + len(part.target_words)
    assert whole.pharaoh().split() == expected
    assert len(expected) == 4  # a word of a sentence without source words comes from nowhere


def test_nothing_aligns_with_nothing():
    model, tokenizer = translator(), byte_level()
    for source, target in (("", ""), ("Hi", ""), ("", "Hi")):
        (found,) = align(model, tokenizer, [source], [target])
        assert found.links() == []
    assert joined_alignment("", "", []).pharaoh() == ""
    assert align(model, tokenizer, [], []) == []


def test_what_cannot_be_aligned_is_refused():
    with pytest.raises(InputError, match="1 sources for 2 targets"):
        align(translator(), byte_level(), ["Hi"], ["Hi", "Hi"])
    with pytest.raises(InputError, match="blocks 0 … 1"):
        align(translator(), byte_level(), ["Hi"], ["Hi"], layer=2)
