"""Unique, bounded, and a step is one rotation; without positions a sentence is a set."""

import pytest
import torch
from helpers.tiny_models import close, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutaway.model.attention import SelfAttention, scores_of
from cutaway.model.positions import RelativeBias, Rotary, Sinusoidal, SinusoidalHalves, positions_of, sinusoids


@given(step=st.integers(-50, 50), width=st.sampled_from([2, 6, 16, 64]))
def test_moving_by_c_is_one_orthogonal_matrix_for_all_positions(step: int, width: int) -> None:
    table = sinusoids(200, width)
    here = table[60:140]
    there = table[60 + step : 140 + step]
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for pair in range(width // 2):
        angle = torch.tensor(step / 10000 ** (2 * pair / width), dtype=torch.float64)
        sin, cos = angle.sin(), angle.cos()
        matrix[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = torch.stack(
            [torch.stack([cos, sin]), torch.stack([-sin, cos])]
        )
    assert torch.allclose(here @ matrix.T, there, atol=1e-12)
    assert torch.allclose(matrix @ matrix.T, torch.eye(width, dtype=torch.float64), atol=1e-12)


def test_the_matrix_of_a_step_can_be_learnt_from_some_positions_and_holds_for_others() -> None:
    table = sinusoids(400, 8)
    learnt = torch.linalg.lstsq(table[:100], table[5:105]).solution.T
    assert torch.allclose(table[200:300] @ learnt.T, table[205:305], atol=1e-9)
    assert torch.allclose(learnt @ learnt.T, torch.eye(8, dtype=torch.float64), atol=1e-9)


def is_bounded(table: Tensor) -> bool:
    """Whether twice as many positions need no larger numbers, and none drowns the embedding it is added to."""
    n = len(table)
    return bool(table[n // 2 :].abs().max() <= table[: n // 2].abs().max() * (1 + 1e-6)) and bool(
        table.abs().max() <= 1
    )


def is_unique(table: Tensor) -> bool:
    """Whether single precision tells any two positions apart, however far into the text they stand."""
    return bool((torch.cdist(table, table).fill_diagonal_(torch.inf) > 1e-3).all())


T = torch.arange(2000, dtype=torch.float64)[:, None]
FAILED = {  # the lecture's candidates before it comes to sinusoids: what they are, bounded?, unique?
    "linear: t": (T, False, True),
    "multiplied: t/2": (T / 2, False, True),
    "exponential: e^-t": (torch.exp(-T), True, False),
    "one sine: sin(2πt/8)": (torch.sin(2 * torch.pi * T / 8), True, False),
}


@pytest.mark.parametrize("candidate", FAILED)
def test_the_lectures_failed_candidates_are_unbounded_or_not_unique(candidate: str) -> None:
    table, bounded, unique = FAILED[candidate]
    assert not (bounded and unique)
    assert (is_bounded(table), is_unique(table)) == (bounded, unique)


@pytest.mark.parametrize("width", [5, 6, 63, 64])
def test_sinusoids_are_bounded_and_unique(width: int) -> None:
    table = sinusoids(2000, width)
    assert is_bounded(table)
    assert is_unique(table)


def test_halves_are_the_same_numbers_in_another_order() -> None:
    table, halves = Sinusoidal(20, 8).rows(), SinusoidalHalves(20, 8).rows()
    assert torch.equal(halves[:, :4], table[:, 0::2])
    assert torch.equal(halves[:, 4:], table[:, 1::2])


def test_a_table_is_as_exact_as_the_model_it_moves_with() -> None:
    part = Sinusoidal(50, 8).half().double()
    assert torch.equal(part.table, sinusoids(50, 8))


@given(shift=st.integers(0, 1000), seed=st.integers(0, 99))
def test_rotary_scores_depend_on_positions_only_by_their_difference(shift: int, seed: int) -> None:
    torch.manual_seed(seed)
    rotary = Rotary(16).double()
    q, k = torch.randn(2, 3, 7, 16, dtype=torch.float64), torch.randn(2, 3, 7, 16, dtype=torch.float64)
    where = torch.randint(100, (2, 7))

    def scores(at: torch.Tensor) -> torch.Tensor:
        turn = rotary(at)
        return scores_of(turn(q), turn(k))

    assert torch.allclose(scores(where), scores(where + shift), atol=1e-10)
    assert not torch.allclose(scores(where), scores(where * 2), atol=1e-3)


@given(shift=st.integers(0, 1000))
def test_attention_with_rotary_positions_sees_only_differences(shift: int) -> None:
    attention, rotary, where = SelfAttention(24, 4).double(), Rotary(6).double(), torch.tensor([[0, 1, 2, 5, 9]])
    x = torch.randn(1, 5, 24, dtype=torch.float64)
    here, there = (attention(x, rotation=rotary(at)) for at in (where, where + shift))
    assert torch.allclose(here, there, atol=1e-10)
    assert not torch.allclose(here, attention(x), atol=1e-3)


def test_rotary_keeps_lengths_and_leaves_position_0_alone() -> None:
    turn, x = Rotary(8).double()(torch.arange(5)[None]), torch.randn(1, 2, 5, 8, dtype=torch.float64)
    assert torch.allclose(turn(x).norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turn(x)[:, :, 0], x[:, :, 0])


def test_rotary_angles_stay_exact_in_a_bfloat16_model() -> None:
    rotary = Rotary(8).bfloat16()
    turn = rotary(torch.tensor([[256, 257]]))
    assert rotary.frequencies.dtype == torch.float32
    assert (turn.cos[0, 0, 0] - turn.cos[0, 0, 1]).abs().max() > 0.1


@given(shift=st.integers(0, 500))
def test_a_relative_bias_sees_only_differences_and_tells_before_from_after(shift: int) -> None:
    bias, where = RelativeBias(4).double(), torch.arange(6)[None]
    assert torch.equal(bias(where, where), bias(where + shift, where + shift))
    assert not torch.equal(bias(where, where)[0, :, 0, 1], bias(where, where)[0, :, 1, 0])
    one_way = RelativeBias(4, both_ways=False)
    ahead = one_way.bucket(torch.arange(0, 9)[None, None])
    assert (ahead == 0).all()  # what lies ahead is hidden anyway


def test_every_relative_bucket_is_used_and_far_ones_grow() -> None:
    buckets = RelativeBias(1).bucket(torch.arange(-300, 301)[None, None])[0, 0]
    assert set(buckets.tolist()) == set(range(32)) - {16}  # 16 would be «0 ahead», which is bucket 0
    past = buckets[:301].flip(0)
    assert (past.diff() >= 0).all()
    assert past[-1] == 15


@given(seed=st.integers(0, 99))
def test_without_positions_permuting_the_input_permutes_the_output(seed: int) -> None:
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    model, ids = tiny("transformer", positions="none"), some_ids(2, 7)
    assert close(model.encode(ids[:, order]), model.encode(ids)[:, order])


@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal_halves", "learned", "rotary"])
def test_with_positions_it_does_not(positions: str) -> None:
    order = torch.tensor([6, 5, 4, 3, 2, 1, 0])
    model, ids = tiny("transformer", positions=positions), some_ids(2, 7)
    assert not torch.allclose(model.encode(ids[:, order]), model.encode(ids)[:, order], atol=1e-3)


def test_positions_count_real_tokens_and_start_anew_in_each_document() -> None:
    ids = torch.zeros(1, 6, dtype=torch.long)
    real = torch.tensor([[False, False, True, True, True, False]])
    assert positions_of(ids).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert positions_of(ids, real).tolist() == [[0, 0, 0, 1, 2, 2]]
    assert positions_of(ids, None, torch.tensor([[7, 7, 3, 3, 3, 9]])).tolist() == [[0, 1, 0, 1, 2, 0]]
