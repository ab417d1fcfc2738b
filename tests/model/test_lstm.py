"""One layer: the formula is torch's LSTM, whatever the order of reading, and its gates can be watched and edited."""

from itertools import pairwise

import pytest
import torch
from helpers.tiny_models import close, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.families import build
from cutaway.model.lstm import GATES, LSTM, backward_order, forward_order, reorder, restore_order
from cutaway.model.tap import edit, watch

D_IN, D = 5, 3


def layer(seed: int = 0) -> LSTM:
    torch.manual_seed(seed)
    return LSTM(D_IN, D).double()


def some_reals(seed: int, batch: int = 3, seq: int = 6) -> Tensor:
    """Padding anywhere; one row is all padding."""
    real = torch.rand(batch, seq, generator=torch.Generator().manual_seed(seed)) > 0.4
    real[-1] = False
    return real


@given(seed=st.integers(0, 999), seq=st.integers(1, 8))
def test_the_formula_is_torchs_lstm_and_so_are_its_gradients(seed: int, seq: int) -> None:
    ours = layer(seed)
    x = torch.randn(2, seq, D_IN, dtype=torch.float64, requires_grad=True)
    by_hand = torch.cat([turn.state for turn in ours._one_by_one(x, None)], dim=1)
    theirs = ours.engine(x)[0]
    assert close(by_hand, theirs)
    wanted = [x, *ours.parameters()]
    pairs = [torch.autograd.grad(out.sin().sum(), wanted) for out in (by_hand, theirs)]
    assert all(close(a, b) for a, b in zip(*pairs, strict=True))


def test_one_step_written_out() -> None:
    """σ(0) = ½ and tanh(0) = 0: each gate by itself, with numbers that can be read."""
    ours = layer()
    gates = torch.zeros(1, 1, 4 * D, dtype=torch.float64)
    one = ours.apply_gates(gates, torch.full((1, 1, D), 2.0, dtype=torch.float64))
    assert torch.equal(one.cell, torch.ones_like(one.cell))  # ½ · 2 + ½ · 0
    assert torch.allclose(one.state, 0.5 * one.cell.tanh())
    big = 50.0
    for gate, (keeps, adds, shows) in enumerate([(0.5, 1, 0.5), (1, 0.5, 0.5), (0.5, 0.5, 0.5), (0.5, 0.5, 1)]):
        pushed = gates.clone()
        pushed[..., 2 * D : 3 * D] = big  # what is new: 1
        pushed[..., gate * D : (gate + 1) * D] = big
        one = ours.apply_gates(pushed, torch.full((1, 1, D), 2.0, dtype=torch.float64))
        assert torch.allclose(one.cell, torch.full_like(one.cell, keeps * 2 + adds))
        assert torch.allclose(one.state, shows * one.cell.tanh())


@given(seed=st.integers(0, 999))
def test_both_orders_of_reading_are_torchs_bidirectional_lstm(seed: int) -> None:
    torch.manual_seed(seed)
    both = nn.LSTM(D_IN, D, batch_first=True, bidirectional=True).double()
    there, back_ = layer(), layer()
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        getattr(there.engine, name).data = getattr(both, name).data
        getattr(back_.engine, name).data = getattr(both, f"{name}_reverse").data
    real = some_reals(seed)
    x = torch.randn(*real.shape, D_IN, dtype=torch.float64)
    found = torch.cat([there(x, order=forward_order(real)), back_(x, order=backward_order(real.long(), real))], dim=-1)
    for row, its in enumerate(real):
        if its.any():
            assert close(found[row, its], both(x[row, its][None])[0][0])


@given(seed=st.integers(0, 999))
def test_an_order_is_undone(seed: int) -> None:
    real = some_reals(seed)
    x = torch.randn(*real.shape, 2)
    for order in (forward_order(real), backward_order(real.long(), real), backward_order(real.long(), None)):
        assert order is not None
        assert (order.sort(dim=1).values == torch.arange(real.shape[1])).all()
        assert torch.equal(restore_order(reorder(x, order), order), x)
    assert forward_order(None) is None
    assert torch.equal(reorder(x, backward_order(real.long(), None)), x.flip(1))


def test_where_a_document_starts_the_past_is_forgotten() -> None:
    ours, x = layer(), torch.randn(2, 6, D_IN, dtype=torch.float64)
    starts = torch.tensor([[True, False, False, True, False, False], [True, False, True, True, False, False]])
    found = ours(x, starts=starts)
    for row, cuts in enumerate([(0, 3, 6), (0, 2, 3, 6)]):
        for a, b in pairwise(cuts):
            assert close(found[row, a:b], ours(x[row : row + 1, a:b])[0])


def test_gates_are_watched_without_changing_a_bit_and_say_how_the_cell_came_about() -> None:
    model, ids = tiny("lstm"), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    before = model(ids, real=real)
    with watch(model, "decoder.*") as seen:
        assert torch.equal(model(ids, real=real), before)
    assert set(seen) == {f"decoder.{layer}.{gate}" for layer in (0, 1) for gate in GATES}
    for number in (0, 1):
        i, f, g, o, cell, state = (seen[f"decoder.{number}.{gate}"] for gate in GATES)
        assert cell.shape == (2, 5, 24)
        assert close(cell[:, 1:3], (f * cell.roll(1, 1) + i * g)[:, 1:3])
        assert close(cell[:, 0], (i * g)[:, 0])
        assert close(state, o * cell.tanh())


@pytest.mark.parametrize("name", ["lstm", "lstm-translator"])
def test_an_edit_that_changes_nothing_takes_the_formula_and_gives_the_same_numbers(name: str) -> None:
    model = tiny(name)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    given_ = (ids, ids) if name == "lstm-translator" else (ids,)
    with edit(model, {"*.state": lambda state: state}):
        assert close(model(*given_), model(*given_).detach())


def test_who_edits_a_gate_is_given_one_step_at_a_time_and_changes_all_later_ones() -> None:
    model, ids, calls = tiny("lstm"), torch.tensor([[3, 1, 4, 1, 5]]), []

    def forget_at_2(gate: Tensor) -> Tensor:
        calls.append(gate.shape)
        return torch.zeros_like(gate) if len(calls) == 3 else gate

    before = model(ids)
    with edit(model, {"decoder.1.forget_gate": forget_at_2}), watch(model, "decoder.1.cell") as seen:
        after = model(ids)
    assert calls == [(1, 1, 24)] * 5
    assert seen["decoder.1.cell"].shape == (1, 5, 24)
    assert close(after[:, :2], before[:, :2])
    assert ((after - before)[:, 2:].abs().amax(dim=-1) > 1e-6).all()


@pytest.mark.parametrize(("size", "n"), [("lstm", 2), ("lstm-translator", 3)])
def test_a_new_layer_keeps_what_it_reads(size: str, n: int) -> None:
    """Forget gates begin at σ(1); all other biases at 0."""
    model = build(size, seed=0, d_model=8, vocab_size=20)
    biases = {name: p for name, p in model.named_parameters() if p.ndim == 1 and p.any()}
    assert len(biases) == n
    for bias in biases.values():
        i, f, g, o = bias.chunk(4)
        assert (f == 1).all()
        assert not torch.cat([i, g, o]).any()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_forward_pass_leaves_no_part_in_another_mode(training: bool, grad: bool) -> None:
    model = tiny("lstm").train(training)
    with torch.set_grad_enabled(grad):
        model(torch.tensor([[1, 2, 3]]))
    assert {part.training for part in model.modules()} == {training}
