"""Rows that are odd on purpose: padding in the middle, packed rows with padding, one row of a cache, refused calls."""

import pytest
import torch
from helpers.tiny_models import DECODERS, READERS, TRANSLATORS, close, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("name", DECODERS)
@given(holes=st.lists(st.booleans(), min_size=9, max_size=9).filter(any))
def test_padding_anywhere_in_a_row_changes_nothing(name: str, cached: bool, holes: list[bool]) -> None:
    model, ids, real = tiny(name), some_ids(1, 9), torch.tensor([holes])
    assert isinstance(model, DecoderModel)
    with torch.no_grad():
        cache = model.new_cache(1, 9) if cached else None
        out = model(ids, real=real, cache=cache)
        assert close(out[real], model(ids[real][None])[0])


@pytest.mark.parametrize("name", READERS)
def test_a_padded_row_with_documents_equals_the_documents_alone(name: str) -> None:
    model, ids = tiny(name), some_ids(1, 9)
    real = torch.tensor([[False, False, True, True, True, False, True, True, True]])
    documents = torch.tensor([[0, 0, 0, 0, 0, 0, 1, 1, 1]])
    out = model(ids, real=real, documents=documents)
    assert close(out[0, 2:5], model(ids[:, 2:5])[0])
    assert close(out[0, 6:], model(ids[:, 6:])[0])


@pytest.mark.parametrize("name", READERS)
def test_a_document_number_that_comes_again_is_another_document(name: str) -> None:
    model, ids = tiny(name), some_ids(1, 6)
    again = model(ids, documents=torch.tensor([[0, 0, 1, 1, 0, 0]]))
    assert torch.equal(again, model(ids, documents=torch.tensor([[0, 0, 1, 1, 2, 2]])))


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_one_row_is_read_while_the_others_wait(name: str) -> None:
    model, ids = tiny(name), some_ids(3, 6)
    assert isinstance(model, DecoderModel)
    cache = model.new_cache(3, 8)
    model(ids[0:1, :5], cache=cache.rows(0, 1))
    model(ids[2:3, :2], cache=cache.rows(2, 3))
    model(ids[1:2, :4], cache=cache.rows(1, 2))
    assert cache.lengths.tolist() == [5, 4, 2]
    last = model(ids[:, 5:], cache=cache)
    for row, n in enumerate((5, 4, 2)):
        alone = model(torch.cat([ids[row, :n], ids[row, 5:]])[None])[0, -1]
        assert close(last[row, 0], alone)


@pytest.mark.parametrize("name", TRANSLATORS)
@torch.no_grad()
def test_rows_of_a_memory_cache_keep_their_sentence_and_may_move(name: str) -> None:
    model, source, target = tiny(name), some_ids(3, 5, seed=1), some_ids(3, 4, seed=2)
    assert isinstance(model, EncoderDecoderModel)
    real = torch.tensor([[True] * 5, [True, True, False, False, False], [True] * 4 + [False]])
    cache = model.new_memory_cache(model.encode(source, real), real, 6)
    alone = model(source, target, source_real=real)
    assert close(model.head(model.decode(target[1:, :3], cache=cache.rows(1, 3))), alone[1:, :3])
    assert cache.lengths.tolist() == [0, 3, 3]
    cache.move([2], [0])
    assert close(model.head(model.decode(target[2:, 3:], cache=cache.rows(0, 1))), alone[2:, 3:])
    assert cache.lengths.tolist() == [4, 3, 3]


@torch.no_grad()
def test_a_refused_call_leaves_the_cache_as_it_was() -> None:
    model, ids = tiny("gpt2", max_len=8), some_ids(1, 8)
    assert isinstance(model, DecoderModel)
    cache = tiny("gpt2", max_len=16).new_cache(1, 16)
    model(ids, cache=cache)
    with pytest.raises(InputError, match="more than max_len=8"):
        model(ids[:, :1], cache=cache)
    assert cache.lengths.tolist() == cache.seen.tolist() == [8]
    translator = tiny("transformer")
    assert isinstance(translator, EncoderDecoderModel)
    memory = translator.encode(ids)
    cache = translator.new_memory_cache(memory, None, 8)
    with pytest.raises(InputError, match="leave `memory`"):
        translator.decode(ids[:, :2], memory=memory, cache=cache)
    assert cache.lengths.tolist() == [0]
    assert (cache.positions < 0).all()


@pytest.mark.parametrize(
    ("dtype", "kept", "near"),
    [
        (torch.float32, torch.bfloat16, 0.05),
        (torch.float64, torch.float32, 1e-5),
        (torch.bfloat16, torch.float32, 0.05),
    ],
)
@torch.no_grad()
def test_a_cache_of_another_precision_serves_a_model(dtype: torch.dtype, kept: torch.dtype, near: float) -> None:
    model, ids = tiny("gpt2", dtype=dtype), some_ids(2, 24)
    assert isinstance(model, DecoderModel)
    cache = model.new_cache(2, 24, dtype=kept)
    pieces = [model(ids[:, some], cache=cache) for some in (slice(20), slice(20, 23), slice(23, 24))]
    plain = model(ids)
    assert (torch.cat(pieces, dim=1) - plain).abs().max() < near * plain.abs().max()
