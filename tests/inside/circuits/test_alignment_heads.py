"""Cross heads: a hand-set diagonal aligns a text with itself; a head that writes nothing loses nothing."""

import pytest
import torch
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import translator
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.circuits.alignment_heads import alignment_heads, copied_words
from cutaway.model.tap import edit

TEXTS = ["We met Anna in 1984.", "In May Tom saw Berlin and 12 men."]


def test_copies_are_names_and_numbers_that_stand_once_on_both_sides() -> None:
    assert copied_words("We met Anna in 1984.", "Wir trafen 1984 Anna.") == [(2, 3), (4, 2)]
    assert copied_words("Anna met Anna in 1984.", "Anna traf Anna 1984.") == [(4, 3)]
    assert copied_words("We met Anna, yes Anna.", "Wir trafen Anna.") == []
    assert copied_words("We met Anna.", "Anna traf Anna.") == []
    assert copied_words("Die in Rome. In 3 days", "Die in Rom. In 3 Tagen") == [
        (5, 5)
    ]  # a sentence begins with any word


@pytest.mark.parametrize("tag", [None, 7])
def test_a_diagonal_aligns_a_text_with_itself(tag: int | None) -> None:
    model, tokenizer = translator(), byte_level()
    front = 0 if tag is None else 1

    def by_hand(pattern: Tensor) -> Tensor:
        new = torch.zeros_like(pattern)
        n = min(pattern.shape[2], pattern.shape[3] - front)
        new[:, 2, range(n), range(front, front + n)] = 1
        new[:, 1, :, front] = 1
        return new

    with edit(model, {"decoder.0.cross.pattern": by_hand}):
        found = alignment_heads(model, tokenizer, TEXTS, TEXTS, tag=tag, effects=False)
    assert found.copies.scores["decoder.0.cross.2"] == 1
    assert found.copies.scores["decoder.0.cross.1"] == 0
    assert found.n_copied == 6
    with edit(model, {"decoder.1.cross.pattern": lambda x: by_hand(x)[:, 2:3].expand_as(x)}):
        found = alignment_heads(model, tokenizer, TEXTS, TEXTS, tag=tag, effects=False)
    assert all(found.agrees.scores[f"decoder.1.cross.{head}"] == 1 for head in range(4))


def test_what_is_lost_is_what_its_weights_gave() -> None:
    model, tokenizer = translator(), byte_level()
    weights = model.decoder[0].cross.output.weight.data  # type: ignore[index, union-attr]
    found = alignment_heads(model, tokenizer, TEXTS, TEXTS)
    weights.view(24, 4, 6)[:, 3] = 0
    less = alignment_heads(model, tokenizer, TEXTS, TEXTS)
    assert abs(less.lost.scores["decoder.0.cross.3"]) < 1e-6
    assert abs(found.lost.scores["decoder.0.cross.3"] - (found.log_p - less.log_p)) < 1e-5
    assert abs(found.lost_copied.scores["decoder.0.cross.3"] - (found.log_p_copied - less.log_p_copied)) < 1e-5
    assert set(found.lost.scores) == set(found.copies.scores)


def test_texts_without_copies_are_refused() -> None:
    with pytest.raises(InputError, match="no word of 1 translations is surely a copy"):
        alignment_heads(translator(), byte_level(), ["so it is"], ["so ist es"])
    with pytest.raises(InputError, match="no sentences"):
        alignment_heads(translator(), byte_level(), [], [])


@pytest.mark.parametrize("tag", [None, 7])
def test_texts_may_fill_the_model(tag: int | None) -> None:
    """A source with its tag and its end, a translation as it is; one token more is refused."""
    tokenizer, short, long = byte_level(), "In 1984.", "It was not before May of 1984."
    n = len(tokenizer.encode(long, special=False))
    for source, target, filled in ((short, long, n), (long, short, n + 1 + (tag is not None))):
        assert alignment_heads(translator(max_len=filled), tokenizer, [source], [target], tag=tag).n_copied == 1
        with pytest.raises(InputError, match=f"a text of {filled} tokens, and the model reads {filled - 1}"):
            alignment_heads(translator(max_len=filled - 1), tokenizer, [source], [target], tag=tag)


def test_what_copies_cost_is_what_their_tokens_cost() -> None:
    model, tokenizer = translator(), byte_level()
    text = TEXTS[0]
    read = tokenizer.encode_full(text, special=False)
    with torch.no_grad():
        logits = model(torch.tensor([[*read.ids, 2]]), torch.tensor([[1, *read.ids[:-1]]]))
    log_p = logits[0].log_softmax(dim=-1)[range(len(read.ids)), read.ids]
    spans = [(text.index(word), text.index(word) + len(word) - 1) for word in (" Anna", " 1984")]  # blanks count
    copies = [i for i, (a, b) in enumerate(read.offsets) if any(a <= stop and b > start for start, stop in spans)]
    found = alignment_heads(model, tokenizer, [text], [text])
    assert abs(found.log_p - log_p.mean().item()) < 1e-5
    assert abs(found.log_p_copied - log_p[copies].mean().item()) < 1e-5
