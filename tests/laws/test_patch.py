"""Cause: a run patched with itself stays itself, with another becomes the other; taking away is taking away."""

from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, TRANSLATORS, close, inputs, some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level
from torch import Tensor

from cutaway.decoding.generate import generate
from cutaway.errors import InputError
from cutaway.inside.patching.activations import mean_activations, record_activations
from cutaway.inside.patching.interventions import Ablate, Patch, Place, intervene
from cutaway.inside.patching.place import axes_of
from cutaway.model.tap import tap_names

EXPLICIT = (".scores", ".pattern")  # an edited pattern takes the written-out path


def others(name: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    if name == "vit":
        return (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(5)).to(dtype),)
    if name in TRANSLATORS:
        return some_ids(2, 7, seed=5), some_ids(2, 6, seed=6)
    return (some_ids(2, 7, seed=5),)


def side_of(name: str) -> str:
    return "encoder" if name in ("bert", "roberta", "roformer", "vit") else "decoder"


@pytest.mark.parametrize("name", ALL)
def test_a_run_patched_with_itself_keeps_every_bit_at_every_tap(name: str) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    with torch.no_grad():
        plain = model(*given)
        own = record_activations(model, *given, places="*")
        for tap in tap_names(model):
            if tap in own and not tap.endswith((*EXPLICIT, ".scale")):
                with intervene(model, Patch(Place(tap), own)):
                    assert torch.equal(model(*given), plain), tap


@pytest.mark.parametrize("name", ALL)
def test_a_run_patched_with_itself_on_the_explicit_path_equals_that_path(name: str) -> None:
    model, given = tiny(name), inputs(name)
    with torch.no_grad():
        plain, own = model(*given), record_activations(model, *given, places="*")
        for tap in (tap for tap in tap_names(model) if tap.endswith((*EXPLICIT, ".scale"))):
            with intervene(model, Ablate(Place(tap, positions=()), "zero")):
                explicit = model(*given)
            with intervene(model, Patch(Place(tap), own)):
                assert torch.equal(model(*given), explicit), tap
            assert close(explicit, plain)


@pytest.mark.parametrize("name", ALL)
def test_everything_from_another_run_gives_the_other_output_bit_for_bit(name: str) -> None:
    dtype = torch.float32
    model, ours, theirs = tiny(name, dtype=dtype), inputs(name, dtype=dtype), others(name, dtype)
    taps = [tap for tap in tap_names(model) if not tap.endswith((*EXPLICIT, ".scale"))]
    streams = ["*embedding.output", "*.residual_before", "*.residual_after"]
    with torch.no_grad():
        wanted = model(*theirs)
        assert not torch.equal(wanted, model(*ours))
        every, entry = (
            record_activations(model, *theirs, places=taps),
            record_activations(model, *theirs, places=streams),
        )
        with intervene(model, [Patch(Place(tap), every) for tap in every]):
            assert torch.equal(model(*ours), wanted)
        with intervene(model, [Patch(Place(tap), entry) for tap in entry]):
            assert torch.equal(model(*ours), wanted)


@pytest.mark.parametrize("name", ALL)
def test_all_heads_and_all_positions_one_by_one_are_the_whole_tap(name: str) -> None:
    model, ours, theirs = tiny(name), inputs(name), others(name, torch.float64)
    tap = f"{side_of(name)}.0.attention.heads"
    with torch.no_grad():
        source = record_activations(model, *theirs, places=tap)
        n_heads, seq = source[tap].shape[1:3]
        with intervene(model, Patch(Place(tap), source)):
            whole = model(*ours)
        pieces = [Patch(Place(tap, head, position), source) for head in range(n_heads) for position in range(seq)]
        with intervene(model, pieces):
            assert torch.equal(model(*ours), whole)
        with intervene(model, pieces[:-1]):
            assert not torch.equal(model(*ours), whole)


@pytest.mark.parametrize("name", ALL)
def test_a_head_set_to_zero_equals_a_model_without_its_weights(name: str) -> None:
    model, given = tiny(name), inputs(name)
    side, head = side_of(name), 2
    places = [(f"{side}.1.attention", getattr(model, side)[1].attention)]
    if name in TRANSLATORS:
        places.append((f"{side}.1.cross", model.decoder[1].cross))
    for prefix, part in places:
        with torch.no_grad(), intervene(model, Ablate(Place.of(f"{prefix}.{head}"))):
            ablated = model(*given)
        kept = part.output.weight.data.clone()
        part.output.weight.data.unflatten(1, (part.n_heads, -1))[:, head] = 0
        with torch.no_grad():
            assert close(ablated, model(*given))
        part.output.weight.data = kept
        with torch.no_grad():
            assert not close(ablated, model(*given))


@pytest.mark.parametrize("name", ALL)
def test_an_ablation_of_nothing_is_nothing(name: str) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    with torch.no_grad():
        plain = model(*given)
        with intervene(model, []):
            assert torch.equal(model(*given), plain)
        nothing = [Place("*.residual_before", positions=()), Place("*.attention.heads", heads=())]
        with intervene(model, [Ablate(place) for place in nothing]):
            assert torch.equal(model(*given), plain)
        with intervene(model, Ablate(Place("*.residual_before"))):
            assert not torch.equal(model(*given), plain)


def test_changes_of_one_tap_are_made_in_order() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    tap = "decoder.1.residual_before"
    own = record_activations(model, ids, places=tap)
    with torch.no_grad():
        plain = model(ids)
        with intervene(model, [Ablate(Place(tap)), Patch(Place(tap), own)]):
            assert torch.equal(model(ids), plain)
        with intervene(model, [Patch(Place(tap), own), Ablate(Place(tap))]):
            assert not close(model(ids), plain)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer"])
def test_only_the_chosen_positions_change_each_row_its_own(name: str) -> None:
    model, given = tiny(name), inputs(name)
    side = side_of(name)
    tap = f"{side}.1.residual_after"
    own = torch.tensor([[1, 3], [2, -1]])
    with torch.no_grad():
        plain = record_activations(model, *given, places=tap)[tap]
        with intervene(model, Ablate(Place(tap, positions=own))):
            changed = record_activations(model, *given, places=tap)[tap]
    for row, positions in enumerate(own.tolist()):
        positions = [position % plain.shape[1] for position in positions]
        for position in range(plain.shape[1]):
            if position in positions:
                assert (changed[row, position] == 0).all()
            else:
                assert torch.equal(changed[row, position], plain[row, position])


def test_what_an_edited_pattern_does_is_what_the_formula_says() -> None:
    model, ids = tiny("llama"), some_ids(2, 6)
    place = Place("decoder.0.attention.pattern", heads=1, positions=-1)
    seen = record_activations(model, ids, places=["decoder.0.attention.pattern", "decoder.0.attention.value"])
    pattern = seen[place.tap].clone()
    pattern[:, 1, -1] = 0
    value = seen["decoder.0.attention.value"].repeat_interleave(2, dim=1)
    with torch.no_grad(), intervene(model, Ablate(place)):
        heads = record_activations(model, ids, places="decoder.0.attention.heads")["decoder.0.attention.heads"]
    assert close(heads, pattern @ value)


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer"])
@pytest.mark.parametrize("tap", ["residual_before", "attention.heads", "feed_forward.features"])
def test_means_do_not_count_padding_and_do_not_depend_on_portions(name: str, tap: str) -> None:
    model, given = tiny(name), inputs(name, batch=5)
    full = f"{side_of(name)}.1.{tap}"
    real = torch.arange(given[-1].shape[1]) < torch.tensor([6, 4, 5, 3, 6])[:, None]
    seen = record_activations(model, *given, places=full, real=real)[full]
    rows = [seen[row, :, real[row]] if seen.ndim == 4 else seen[row, real[row]] for row in range(5)]
    by_hand = torch.cat(rows, dim=-2).mean(dim=-2, keepdim=True)
    found = mean_activations(model, *given, places=full, rows=2, real=real)[full]
    assert close(found[0], by_hand)
    each = mean_activations(model, *given, places=full, rows=3, per_position=True, real=real)[full]
    third = torch.stack([seen[row, ..., 3, :] for row in range(5) if real[row, 3]]).mean(dim=0)
    assert close(each[0, ..., 3, :], third)
    with torch.no_grad(), intervene(model, Ablate(Place(full), "mean", found)):
        changed = record_activations(model, *given, places=full, real=real)[full]
    assert torch.equal(changed, found.expand_as(changed))


def test_resampled_rows_are_those_of_others_and_the_seed_says_whose() -> None:
    model, ids = tiny("gpt2"), some_ids(6, 5)
    tap = "decoder.0.residual_after"
    plain = record_activations(model, ids, places=tap)[tap]

    def changed(**more: Any) -> Tensor:
        with intervene(model, Ablate(Place(tap), "resample", **more)):
            return record_activations(model, ids, places=tap)[tap]

    for seed in range(5):
        donors = [(changed(seed=seed)[row] == plain).flatten(1).all(dim=1).nonzero().item() for row in range(6)]
        assert sorted(donors) == list(range(6))
        assert all(donor != row for row, donor in enumerate(donors))
        assert torch.equal(changed(seed=seed), changed(seed=seed))
    assert not torch.equal(changed(seed=0), changed(seed=1))
    pool = record_activations(model, some_ids(3, 5, seed=9), places=tap)
    drawn = changed(source=pool)
    whose = [[torch.equal(row, other) for other in pool[tap]].index(True) for row in drawn]
    assert len(set(whose)) > 1
    assert torch.equal(changed(source=pool), drawn)
    assert any(not torch.equal(changed(source=pool, seed=seed), drawn) for seed in (1, 2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: Ablate(Place("decoder.0.residual_after"), "median"), "how='median' is not one of"),
        (lambda: Ablate(Place("decoder.0.residual_after"), "mean"), "needs a source"),
        (lambda: Ablate(Place("decoder.0.residual_after"), source=torch.zeros(1)), "needs no source"),
        (lambda: Ablate(Place("decoder.0.residual")), "no tap matches 'decoder.0.residual'"),
        (lambda: Ablate(Place("decoder.0.residual_after", heads=1)), "has no heads"),
        (lambda: Ablate(Place("decoder.0.attention.heads", heads=4)), "head 4 of .* which has 4"),
        (lambda: Ablate(Place("decoder.0.residual_after", positions=6)), "position 6 of .* which has 6"),
        (lambda: Ablate(Place("decoder.0.residual_after", positions=torch.zeros(3, 1))), "3 rows in a batch of 1"),
        (lambda: Ablate(Place("decoder.0.residual_after"), "resample"), "at least 2"),
        (
            lambda: Patch(Place("decoder.0.residual_after"), torch.zeros(1, 7, 24)),
            r"\(1, 7, 24\), this pass \(1, 6, 24\)",
        ),
        (lambda: Patch(Place("decoder.0.residual_after"), {"a": torch.zeros(1)}), "has no 'decoder.0.residual_after'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(change: Any, said: str) -> None:
    model = tiny("gpt2")
    with pytest.raises(InputError, match=said), torch.no_grad(), intervene(model, change()):
        model(some_ids(1, 6))


def test_every_step_of_a_text_is_changed_and_chosen_positions_are_refused_with_a_cache() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    with torch.no_grad(), intervene(model, Ablate(Place.of("decoder.1.attention.2"))):
        whole = model(ids)
        cache = model.new_cache(2, 8)
        steps = torch.cat([model(ids[:, :3], cache=cache), model(ids[:, 3:4], cache=cache)], dim=1)
    assert close(steps, whole[:, :4])
    with torch.no_grad(), intervene(model, Ablate(Place("decoder.1.residual_after", positions=0))):
        model(ids)
        with pytest.raises(InputError, match="leave positions out"):
            model(ids[:, :1], cache=model.new_cache(2, 8))
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_a_tensor_of_one_axis_is_one_position_for_each_row_and_a_list_is_for_all() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    tap = "decoder.1.residual_after"

    def changed(positions: Any) -> list[list[int]]:
        with torch.no_grad(), intervene(model, Ablate(Place(tap, positions=positions))):
            gone = (record_activations(model, ids, places=tap)[tap] == 0).all(dim=-1)
        return [row.nonzero()[:, 0].tolist() for row in gone]

    assert changed(torch.tensor([1, -1])) == [[1], [5]]
    assert changed([1, -1]) == [[1, 5], [1, 5]]
    assert changed(torch.tensor(2)) == [[2], [2]]
    with pytest.raises(InputError, match="for 3 rows in a batch of 2"):
        changed(torch.tensor([1, 2, 3]))
    own = torch.tensor([1, 5])
    seen = record_activations(model, ids, places=tap)[tap]
    for rows in (1, 2):
        found = mean_activations(model, ids, places=Place(tap, positions=own), rows=rows)[tap]
        assert close(found[0, 0], (seen[0, 1] + seen[1, 5]) / 2)


def test_a_mean_in_few_bits_is_added_up_in_more() -> None:
    model, ids = tiny("gpt2", dtype=torch.bfloat16), some_ids(60, 30)
    tap = "decoder.1.residual_after"
    seen = torch.cat([record_activations(model, some, places=tap)[tap] for some in ids.split(4)])
    found = mean_activations(model, ids, places=tap, rows=4)[tap]
    assert found.dtype == torch.float32
    wanted = seen.double().mean(dim=(0, 1), keepdim=True)
    assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_a_tap_has_one_mean() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    tap = "decoder.1.residual_after"
    own = torch.tensor([1, 2])
    for one, other in ((0, 1), (None, 1), ([0], own), (own, own + 1)):
        with pytest.raises(InputError, match=r"two places of 'decoder.1.residual_after', with positions"):
            mean_activations(
                model, ids, places=[Place("decoder.*.residual_after", positions=one), Place(tap, positions=other)]
            )
    twice = [Place(tap, positions=own), Place(tap, positions=own.clone())]
    assert torch.equal(
        mean_activations(model, ids, places=twice)[tap], mean_activations(model, ids, places=twice[:1])[tap]
    )


def test_rows_with_other_padding_do_not_take_values_from_each_other() -> None:
    model, given = tiny("transformer"), inputs("transformer")
    for name, x in (("source_real", given[0]), ("real", given[1])):
        padded = torch.arange(x.shape[1]) < torch.tensor([[4], [x.shape[1]]])
        same: dict[str, Any] = {name: padded[:1].expand(2, -1)}
        place = Place("decoder.0.residual_after")
        with torch.no_grad(), intervene(model, Ablate(place, "resample")):
            model(*given, **same)
            for run in (model, model.hidden):
                with pytest.raises(InputError, match=f"of which {name}= differs would put padding into tokens"):
                    run(*given, **{name: padded})
        pool = record_activations(model, *given, places=place)
        with torch.no_grad(), intervene(model, Ablate(place, "resample", pool)):
            model(*given, **{name: padded})
    assert not any(part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("lengths", [(4, 4), (2, 6)])
def test_nor_while_text_is_written(lengths: tuple[int, int]) -> None:
    """The engine calls no forward pass: what it reads is padded all the same."""
    model, tokenizer = tiny("gpt2", vocab_size=400, dtype=torch.float32), byte_level()
    prompts = ["a" * length for length in lengths]
    with intervene(model, Ablate(Place("decoder.0.residual_after"), "resample")):
        if len(set(lengths)) == 1:
            assert len(generate(model, tokenizer, prompts, max_tokens=3)) == 2
        else:
            with pytest.raises(InputError, match="would put padding into tokens"):
                generate(model, tokenizer, prompts, max_tokens=3)


def test_what_dropout_changes_is_not_recorded() -> None:
    with pytest.raises(InputError, match=r"in training.*model\.eval"):
        record_activations(tiny("gpt2").train(), some_ids(2, 6), places="*")


@pytest.mark.parametrize("name", ["transformer", "transformer-rotary", "t5"])
def test_no_mean_of_a_translator_counts_padding_of_either_side(name: str) -> None:
    """Of every tap: the mean over padded rows is that over the same rows, each read alone without any."""
    model, (source, target) = tiny(name), inputs(name, batch=4)
    lengths = torch.tensor([[7, 6], [3, 6], [5, 2], [7, 4]])
    source_real, real = (torch.arange(x.shape[1]) < lengths[:, i, None] for i, x in enumerate((source, target)))
    taps = [tap for tap in tap_names(model) if not tap.endswith((".scores", ".pattern", ".angle", "_bias.bias"))]
    taps = [tap for tap in taps if tap in record_activations(model, source, target, places=tap)]
    rows = [(source[i : i + 1, :n], target[i : i + 1, :m]) for i, (n, m) in enumerate(lengths.tolist())]
    alone = [record_activations(model, *row, places=taps) for row in rows]
    found = mean_activations(model, source, target, places=taps, rows=3, source_real=source_real, real=real)
    assert {"encoder", "decoder", "source_embedding", "target_embedding"} <= {tap.partition(".")[0] for tap in found}
    assert {tap for tap in found if tap.endswith(("cross.key", "cross.value", "cross.query"))}
    for tap, mean in found.items():
        axis = axes_of(tap, alone[0][tap]).position
        by_hand = torch.cat([one[tap] for one in alone], dim=axis).mean(dim=axis, keepdim=True)
        assert close(mean, by_hand), tap


def test_every_row_of_a_source_may_be_taken_and_about_as_often() -> None:
    model, ids = tiny("gpt2"), some_ids(6, 5)
    tap = "decoder.0.residual_after"
    pool = record_activations(model, some_ids(3, 5, seed=9), places=tap)
    taken = []
    for seed in range(50):
        with intervene(model, Ablate(Place(tap), "resample", source=pool, seed=seed)):
            drawn = record_activations(model, ids, places=tap)[tap]
        taken += [[torch.equal(row, other) for other in pool[tap]].index(True) for row in drawn]
    counts = [taken.count(row) for row in range(3)]
    assert sum(counts) == 300
    assert max(abs(count - 100) for count in counts) < 5 * (300 * (1 / 3) * (2 / 3)) ** 0.5
    one = {tap: pool[tap][:1]}
    with intervene(model, Ablate(Place(tap), "resample", source=one)):
        assert torch.equal(record_activations(model, ids, places=tap)[tap], pool[tap][:1].expand(6, -1, -1))
