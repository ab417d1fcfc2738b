"""Building: exact sizes, every weight drawn, the same seed the same model."""

import copy

import pytest
import torch
from helpers.tiny_models import ALL, inputs, some_ids, tiny

from cutaway.families import bare, build, sizes
from cutaway.model.positions import sinusoids

COUNTS = {
    ("bert-base", "hidden"): 109_482_240,
    ("gpt2", "language_model"): 124_439_808,
    ("gpt2-xl", "language_model"): 1_557_611_200,
    ("gpt", "language_model"): 116_534_784,
    ("vit-b-16", "classify"): 86_567_656,
    ("t5-base", "translate"): 222_903_552,
    ("smollm2-135m", "language_model"): 134_515_008,
    ("llama2-7b", "language_model"): 6_738_415_616,
}


@pytest.mark.parametrize(("size", "task"), COUNTS)
def test_the_published_number_of_parameters(size: str, task: str) -> None:
    assert build(size, task=task, device="meta").n_parameters() == COUNTS[size, task]


def test_the_2017_sizes_are_those_of_table_3() -> None:
    """65 and 213 million there, with a vocabulary of about 37,000."""
    assert build("transformer-base", device="meta").n_parameters() == 63_082_496
    assert build("transformer-big", device="meta").n_parameters() == 214_245_376


@pytest.mark.parametrize("name", ALL)
def test_initialise_draws_every_weight(name: str) -> None:
    model = tiny(name)
    for parameter in model.parameters():
        parameter.data.fill_(float("nan"))
    model.initialise()
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert torch.isfinite(model(*inputs(name))).all()


@pytest.mark.parametrize("name", ALL)
def test_the_same_seed_gives_the_same_weights_and_disturbs_nobody(name: str) -> None:
    config = tiny(name).config
    torch.manual_seed(7)
    first = build(config, seed=3)
    drawn = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), drawn)
    second, other = build(config, seed=3), build(config, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", ALL)
def test_a_copy_is_whole_and_independent(name: str) -> None:
    model = tiny(name)
    twin = copy.deepcopy(model)
    expected = model(*inputs(name))
    assert torch.equal(twin(*inputs(name)), expected)
    for parameter in model.parameters():
        parameter.data.zero_()
    assert torch.equal(twin(*inputs(name)), expected)


@pytest.mark.parametrize("name", ALL)
def test_every_weight_has_one_name(name: str) -> None:
    model = tiny(name)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("name", ALL)
def test_a_new_model_begins_near_even_odds(name: str) -> None:
    """Scores far from 0 at the start would cost the first steps of training."""
    model = build(tiny(name).config, seed=0).eval()
    logits = model(*inputs(name, dtype=torch.float32))
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    assert entropy > 0.8 * torch.tensor(float(logits.shape[-1])).log()


def test_a_bare_model_costs_nothing_and_its_tables_are_filled_when_it_is_given_memory() -> None:
    model = bare(sizes()["transformer-base"])
    assert all(parameter.is_meta for parameter in model.parameters())
    table = model.to_empty(device="cpu").source_embedding.positions.table
    assert torch.equal(table, sinusoids(*table.shape).float())


def test_gpt2s_writes_are_scaled_by_their_number() -> None:
    model = build("gpt2", seed=0, n_layers=8, d_model=64, n_heads=2, d_ff=256, vocab_size=50, max_len=8)
    block = model.decoder[0]
    assert block.feed_forward.up.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert block.feed_forward.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.1)


def test_dropout_works_in_training_and_not_in_evaluation() -> None:
    model, ids = tiny("gpt2", dropout=0.5), some_ids(2, 6)
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


# How wide the first weights are: a number, or by what goes in or comes out.
FIRST: dict[str, dict[str, float | str]] = {
    **{name: {"": 0.02} for name in ("bert", "roberta", "roformer", "gpt", "llama", "vit")},
    "transformer": {"embedding": "in", "head": "in", "": "glorot"},
    "lstm": {"embedding": "in", "": "in / √3"},
    "lstm-translator": {"embedding": "in", "": "in / √3"},
}  # GPT-2's and T5's are held against `transformers`


@pytest.mark.parametrize("name", FIRST)
def test_the_first_weights_are_as_wide_as_is_said(name: str) -> None:
    size = {"d_model": 96} | ({} if "lstm" in name or name == "vit" else {"vocab_size": 400, "d_ff": 160})
    size |= {"n_classes": 400} if name == "vit" else {"tied": False}
    size |= {"vocab_size": 400} if "lstm" in name else {}
    model = build(tiny(name, **size).config, seed=0)
    for place, parameter in model.state_dict().items():
        if parameter.ndim < 2 or parameter.numel() < 2000:
            continue
        n_out, n_in = parameter.shape[0], parameter.shape[-1]
        how = next(how for word, how in FIRST[name].items() if word in place)
        wide = {"in": n_in**-0.5, "in / √3": (3 * n_in) ** -0.5, "glorot": (2 / (n_in + n_out)) ** 0.5}
        expected = wide[how] if isinstance(how, str) else how
        assert float(parameter.std()) == pytest.approx(expected, rel=0.06), place
        assert abs(float(parameter.mean())) < 5 * expected / parameter.numel() ** 0.5, place
