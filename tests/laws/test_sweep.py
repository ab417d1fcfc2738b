"""A sweep is its cells: each equals one patched pass, whatever is left out of the computation."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, DECODERS, TRANSLATORS, close, inputs, some_ids, tiny
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.circuits.circuit_task import circuit_task
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.activations import record_activations
from cutaway.inside.patching.estimate import compare_sweeps, estimate_sweep
from cutaway.inside.patching.interventions import Ablate, Patch, Place, intervene
from cutaway.inside.patching.metrics import Kl, LogitDifference, LogProbability, last_real
from cutaway.inside.patching.sweep import Sweep, patch_sweep
from cutaway.model.precision import to_int8
from cutaway.model.tap import watch

METRIC = LogitDifference([1, 2], 3)


def two_runs(name: str, dtype: torch.dtype = torch.float64) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    clean = inputs(name, dtype=dtype)
    return clean, tuple(x.flip(0) if x.is_floating_point() else (x + 7) % 50 for x in clean)


def one_by_one(
    model: Any, found: Sweep, clean: Any, corrupted: Any, metric: Any, own: Any = None, **more: Any
) -> Tensor:
    """Every cell as a pass of its own."""
    source = record_activations(model, *clean, places=found.tap, **more)
    values = []
    for layer in found.layers:
        for number in range(1 if found.positions is None else len(found.positions)):
            position = None if found.positions is None else found.positions[number]
            where = position if own is None else own[:, number : number + 1]
            for head in found.heads or (None,):
                place = Place(found.tap.replace("*", str(layer)), head, where)
                with torch.no_grad(), intervene(model, Patch(place, source)):
                    values.append(metric(model(*corrupted, **more)))
    return torch.stack(values).view_as(found.values)


TAPS = "attention feed_forward attention.value attention.key attention.query attention.pattern feed_forward.features"
ACROSS = "cross cross_heads cross.key cross.query"
CASES = [(name, over) for name in ALL for over in ("residual", "heads")]
CASES += [(name, over) for name in ("gpt2", "llama", "bert") for over in TAPS.split()]
CASES += [(name, over) for name in ("transformer", "t5") for over in ACROSS.split()]


@pytest.mark.parametrize(("name", "over"), CASES)
def test_every_cell_is_a_patched_pass(name: str, over: str) -> None:
    model, (clean, corrupted) = tiny(name), two_runs(name)
    for side in ("decoder",) if over in ACROSS else ("encoder", "decoder"):
        if hasattr(model, side):
            for layers, positions in ((None, None), ([-1], [1, -1])):
                words: dict[str, Any] = {"side": side, "layers": layers, "positions": positions, "rows": 14}
                found = patch_sweep(model, clean, corrupted, METRIC, over=over, **words)
                assert close(found.values, one_by_one(model, found, clean, corrupted, METRIC))
                assert (found.values - found.corrupted).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_single_precision_too(name: str) -> None:
    model, (clean, corrupted) = tiny(name, dtype=torch.float32), two_runs(name, torch.float32)
    found = patch_sweep(model, clean, corrupted, METRIC)
    assert close(found.values, one_by_one(model, found, clean, corrupted, METRIC))


@pytest.mark.parametrize("rows", [1, 2, 5, 1000])
def test_how_many_rows_are_computed_together_changes_nothing(rows: int) -> None:
    model, (clean, corrupted) = tiny("llama", n_layers=3), two_runs("llama")
    plain = patch_sweep(model, clean, corrupted, METRIC, over="heads", positions=True)
    assert close(
        patch_sweep(model, clean, corrupted, METRIC, over="heads", positions=True, rows=rows).values, plain.values
    )


@pytest.mark.parametrize("name", [*DECODERS, "bert", "transformer", "t5"])
@pytest.mark.parametrize("left", [True, False])
def test_padded_rows_and_positions_of_their_own(name: str, left: bool) -> None:
    model, (clean, corrupted) = tiny(name), two_runs(name)
    seq = clean[-1].shape[1]
    real = torch.arange(seq) < torch.tensor([[4], [seq]])
    real = real.flip(1) if left else real
    metric = LogProbability(4, at=torch.tensor([seq - 1 if left else 3, seq - 1]))
    own = torch.tensor([[3, seq - 2], [0, 2]])
    found = patch_sweep(model, clean, corrupted, metric, positions=own, real=real, rows=6)
    assert found.positions == (0, 1)
    assert close(found.values, one_by_one(model, found, clean, corrupted, metric, own, real=real))
    assert (found.values - found.corrupted).abs().amax(dim=(0, 2)).min() > 1e-6


WIDE = [*((name, "heads") for name in ("gpt", "gpt2", "llama", "bert", "transformer")), ("transformer", "cross_heads")]


@pytest.mark.parametrize("padded", ["not", "left", "right"])
@pytest.mark.parametrize(("name", "over"), WIDE)
def test_heads_as_wide_as_our_own_kernels_want_them(name: str, over: str, padded: str) -> None:
    """16 numbers a head, in single precision: on some CPUs another look-up finds them, and it packs them otherwise."""
    model, (clean, corrupted) = tiny(name, d_model=64, dtype=torch.float32), two_runs(name, torch.float32)
    seq = clean[-1].shape[1]
    real = torch.arange(seq) < torch.tensor([[4], [seq]])
    real = real.flip(1) if padded == "left" else real
    at = torch.tensor([3 if padded == "right" else seq - 1, seq - 1])
    more = {} if padded == "not" else {"real": real}
    for positions in (True, False):
        found = patch_sweep(model, clean, corrupted, LogProbability(4, at=at), over=over, positions=positions, **more)
        assert close(found.values, one_by_one(model, found, clean, corrupted, LogProbability(4, at=at), **more))
        assert (found.values - found.corrupted).abs().max() > 1e-3
    gone = ablate_sweep(model, *clean, metric=LogProbability(4, at=at), over=over, **more)
    for layer, head in ((0, 1), (1, 3)):
        place = Place(gone.tap.replace("*", str(layer)), head)
        with torch.no_grad(), intervene(model, Ablate(place)):
            assert close(gone.values[layer, head], LogProbability(4, at=at)(model(*clean, **more)))


def test_an_encoder_is_swept_for_a_word_behind_its_own_length() -> None:
    model = tiny("transformer")
    clean, corrupted = ((some_ids(2, 3, seed=seed), some_ids(2, 9, seed=4)) for seed in (1, 2))
    for metric in (LogProbability(4, at=8), LogitDifference(1, 2, at=(2, 7))):
        found = patch_sweep(model, clean, corrupted, metric, side="encoder")
        assert close(found.values, one_by_one(model, found, clean, corrupted, metric))


@pytest.mark.parametrize("at", [2, (1, 4), None])
def test_what_comes_after_the_question_does_not_matter_and_before_it_does(at: Any) -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    with torch.no_grad():
        metric = Kl(model(*clean), at=at)
    found = patch_sweep(model, clean, corrupted, metric)
    assert close(found.values, one_by_one(model, found, clean, corrupted, metric))
    last = 6 if at is None else at if isinstance(at, int) else max(at)
    behind = found.values[:, last + 1 :]
    assert torch.allclose(behind, found.corrupted.expand_as(behind), rtol=0, atol=1e-12)
    assert (found.clean.abs() < 1e-12).all()


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_any_function_of_the_logits_is_a_metric_and_heads_may_read_all_positions(task: str) -> None:
    model, (clean, corrupted) = tiny("bert", task=task, n_classes=3), two_runs("bert")

    def metric(logits: Tensor) -> Tensor:
        return logits.flatten(1).logsumexp(dim=1)

    for how in (metric, LogProbability(1, at=2)):
        found = patch_sweep(model, clean, corrupted, how, rows=8)
        assert close(found.values, one_by_one(model, found, clean, corrupted, how))


def test_the_last_token_of_a_decoder_classifies() -> None:
    model, (clean, corrupted) = tiny("llama", task="classify", n_classes=3), two_runs("llama")
    real = torch.arange(7) < torch.tensor([[5], [7]])
    found = patch_sweep(model, clean, corrupted, LogitDifference(0, 1), real=real)
    assert close(found.values, one_by_one(model, found, clean, corrupted, LogitDifference(0, 1), real=real))


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer", "vit"])
def test_effects_run_from_the_corrupted_run_to_the_clean_one(name: str) -> None:
    model, (clean, corrupted) = tiny(name), two_runs(name)
    side = "decoder" if hasattr(model, "decoder") else "encoder"
    both = patch_sweep(model, clean, corrupted, METRIC, positions=False, layers=[0], side=side)
    assert both.axes == ("layer",)
    if name != "transformer":  # where the memory differs, too
        assert close(both.effects, torch.ones(1, dtype=torch.float64))
    same = patch_sweep(model, corrupted, corrupted, METRIC)
    assert close(same.values, same.corrupted.expand_as(same.values))
    assert same.to_dict()["effects"] is None
    assert json.loads(json.dumps(both.to_dict())) == both.to_dict()


def test_a_sweep_leaves_nothing_behind() -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    before = {name: p.grad for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    patch_sweep(model, clean, corrupted, METRIC)
    estimate_sweep(model, clean, corrupted, METRIC)
    assert torch.equal(state, torch.get_rng_state())
    assert {name: p.grad for name, p in model.named_parameters()} == before
    assert not any(part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            {"over": "residuals"},
            "over='residuals': the decoder of this model has residual, heads, attention, feed_forward;",
        ),
        ({"side": "encoder"}, "this model has decoder"),
        ({"layers": [5]}, r"layers=\[5\]: the decoder has layers 0…1"),
        ({"heads": [0]}, "'residual_before' has none"),
        ({"over": "heads", "heads": [4]}, r"heads=\[4\]: there are 0…3"),
        ({"positions": [7]}, r"positions=\[7\]: there are 0…6"),
        ({"positions": torch.tensor([[0]])}, "for 2 rows of 7"),
        ({"positions": torch.tensor(0)}, "for 2 rows of 7"),
    ],
)
def test_a_sweep_that_cannot_be_meant_is_refused(words: dict[str, Any], said: str) -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    with pytest.raises(InputError, match=said):
        patch_sweep(model, clean, corrupted, METRIC, **words)


def test_other_runs_that_cannot_be_swept_are_refused() -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    with pytest.raises(InputError, match="need rows of one length"):
        patch_sweep(model, clean, corrupted[0][:, :5], METRIC)
    with pytest.raises(InputError, match="clean: 1 tensors, corrupted: 2: both need"):
        patch_sweep(model, clean, [*corrupted, *corrupted], METRIC)
    with pytest.raises(InputError, match="inside a watch"), watch(model, "head.logits"):
        patch_sweep(model, clean, corrupted, METRIC)
    with pytest.raises(InputError, match=r"model\.eval"):
        patch_sweep(model.train(), clean, corrupted, METRIC)
    with pytest.raises(InputError, match="one number each"):
        patch_sweep(model.eval(), clean, corrupted, lambda logits: logits.mean())


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer", "t5", "vit"])
@pytest.mark.parametrize("over", ["residual", "heads", "feed_forward", "attention.pattern"])
def test_an_estimate_is_exact_for_small_changes(name: str, over: str) -> None:
    """The inputs are moved a little, so that the first order is all there is."""
    model, (clean, _) = tiny(name), two_runs(name)
    side = "decoder" if name in DECODERS else "encoder"
    if name == "vit":
        near = (clean[0] + 1e-6 * torch.randn_like(clean[0]),)
    else:  # words 25 … 49 become almost the same as 0 … 24
        table = model.get_submodule("source_embedding" if name in TRANSLATORS else "embedding").tokens.matrix.data
        table[25:] = table[:25] + 1e-6 * torch.randn(25, 24, dtype=torch.float64)
        clean = (clean[0] % 25, *clean[1:])
        near = (clean[0] + 25, *clean[1:])
    found = patch_sweep(model, near, clean, METRIC, over=over, side=side)
    guess = estimate_sweep(model, near, clean, METRIC, over=over, side=side)
    a, b = found.values - found.corrupted, guess.values - guess.corrupted
    assert a.abs().max() > 1e-9
    assert (a - b).abs().max() <= 1e-3 * a.abs().max()
    alike = compare_sweeps(found, guess)
    assert min(alike.pearson, alike.rank, alike.sign) > 0.99


def test_agreement_is_what_scipy_says() -> None:
    from scipy.stats import pearsonr, spearmanr

    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    found, guess = (f(model, clean, corrupted, METRIC, over="heads") for f in (patch_sweep, estimate_sweep))
    a, b = (one.effects.flatten().numpy() for one in (found, guess))
    alike = compare_sweeps(found, guess)
    assert alike.pearson == pytest.approx(pearsonr(a, b).statistic)
    assert alike.rank == pytest.approx(spearmanr(a, b).statistic)
    assert compare_sweeps(found, found).to_dict() == pytest.approx({"pearson": 1.0, "rank": 1.0, "sign": 1.0})


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer"])
def test_nobody_reads_padding_and_a_padded_row_is_as_it_is_alone(name: str) -> None:
    model, (clean, corrupted) = tiny(name), two_runs(name)
    seq = clean[-1].shape[1]
    real = torch.arange(seq) < torch.tensor([[4], [seq]])
    at_end = LogitDifference(1, 2)
    one = tuple(x[:1] for x in clean)
    for asks in (
        lambda: patch_sweep(model, clean, corrupted, at_end, real=real),
        lambda: estimate_sweep(model, clean, corrupted, at_end, real=real),
        lambda: circuit_task(model, *clean, metric=at_end, reference=corrupted, real=real),
        lambda: ablate_sweep(model, *one, metric=at_end, real=real[:1]),
        lambda: patch_sweep(model, clean, corrupted, LogitDifference(1, 2, at=None), real=real),
    ):
        with pytest.raises(InputError, match=r"in row 0, LogitDifference reads padding: use at=last_real\(real\)"):
            asks()
    metric = LogitDifference(1, 2, at=last_real(real))
    found = patch_sweep(model, clean, corrupted, metric, real=real)
    alone = patch_sweep(
        model, (*one[:-1], one[-1][:, :4]), tuple(x[:1] for x in (*corrupted[:-1], corrupted[-1][:, :4])), at_end
    )
    assert close(found.clean[:1], alone.clean)
    assert close(found.values[:, :4, :1], alone.values)


def test_one_position_for_each_row_is_a_tensor_without_further_axis() -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    own = torch.tensor([3, 6])
    found = patch_sweep(model, clean, corrupted, METRIC, positions=own)
    assert found.positions == (0,)
    assert torch.equal(found.values, patch_sweep(model, clean, corrupted, METRIC, positions=own[:, None]).values)
    assert close(found.values, one_by_one(model, found, clean, corrupted, METRIC, own[:, None]))


def test_rounded_matrices_are_swept_cell_by_cell_and_an_estimate_is_refused() -> None:
    model, (clean, corrupted) = to_int8(tiny("gpt2", dtype=torch.float32)), two_runs("gpt2")
    with pytest.raises(InputError, match="no gradient flows"):
        estimate_sweep(model, clean, corrupted, METRIC)
    found = patch_sweep(model, clean, corrupted, METRIC)
    alone = one_by_one(model, found, clean, corrupted, METRIC)
    assert (found.values - alone).abs().max() < 0.05  # another last bit may tip a rounding over
    assert (found.values - found.corrupted).abs().max() > 1
    asked = circuit_task(model, *clean, metric=METRIC, reference=corrupted)
    with pytest.raises(InputError, match="no gradient flows"):
        asked.estimates()


def test_one_cell_correlates_with_nothing() -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    few: dict[str, Any] = {"layers": [1], "positions": [-1]}
    found, guess = (f(model, clean, corrupted, METRIC, **few) for f in (patch_sweep, estimate_sweep))
    assert compare_sweeps(found, guess).to_dict() == {"pearson": None, "rank": None, "sign": 1.0}
    still = patch_sweep(model, corrupted, corrupted, METRIC, layers=[1])
    moved = patch_sweep(model, clean, corrupted, METRIC, layers=[1])
    assert compare_sweeps(still, moved).pearson is None
    assert compare_sweeps(moved, still).rank is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([0.0, 0.0, 0.0, 1.0, 2.0, 2.0], [0.0, 1.0, 0.0, 3.0, 2.0, 2.0]),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [5.0, 4.0, 3.0, 2.0, 1.0, 1.0]),
        ([3.0, -1.0, 3.0, -1.0, 3.0, -1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 4.0, 9.0, 16.0, 25.0, 36.0]),
    ],
)
def test_equal_effects_share_the_mean_of_their_ranks(a: list[float], b: list[float]) -> None:
    """Most cells of a model do nothing at all, and a rank of the lowest would count that as order."""
    from scipy.stats import pearsonr, spearmanr

    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    found = patch_sweep(model, clean, corrupted, METRIC, layers=[0, 1], positions=[0, 1, 2])
    still = torch.zeros_like(found.corrupted)

    def moving(effects: list[float]) -> Sweep:
        values = torch.tensor(effects, dtype=torch.float64).view(*found.values.shape[:-1], 1)
        return replace(found, values=values.expand_as(found.values), corrupted=still)

    alike = compare_sweeps(moving(a), moving(b))
    assert alike.rank == pytest.approx(spearmanr(a, b).statistic)
    assert alike.pearson == pytest.approx(pearsonr(a, b).statistic)
    same = [(x > 0) - (x < 0) == (y > 0) - (y < 0) for x, y in zip(a, b, strict=True)]
    assert alike.sign == pytest.approx(sum(same) / len(same))


def test_rounding_is_no_movement_however_small_the_smallest_number_is() -> None:
    model, (clean, corrupted) = tiny("gpt2"), two_runs("gpt2")
    found = patch_sweep(model, clean, corrupted, METRIC, layers=[0], positions=[0, 1, 2, 3])
    base = torch.full_like(found.corrupted, 1000.0)

    def moving(effects: list[float]) -> Sweep:
        values = 1000.0 + torch.tensor(effects, dtype=torch.float64).view(*found.values.shape[:-1], 1)
        return replace(found, values=values.expand_as(found.values), corrupted=base)

    alike = compare_sweeps(moving([1e-12, -1e-12, 5.0, -1000.0]), moving([0.0, 0.0, 5.0, -1000.0]))
    assert alike.sign == 1.0
    assert alike.rank == pytest.approx(1.0)
    assert compare_sweeps(moving([1e-9, -1e-9, 5.0, -1000.0]), moving([0.0, 0.0, 5.0, -1000.0])).sign == 0.5
