"""Deletion: what counts goes first, and the number falls; a random order is what that is held against."""

import pytest
import torch
from helpers.linear_model import LinearModel
from helpers.tiny_models import close, inputs, some_ids, tiny

from cutaway.errors import InputError
from cutaway.inside.attribution.by_gradient import gradient_x_input
from cutaway.inside.attribution.deletion_curve import SHARES, DeletionCurve, deletion_curve
from cutaway.inside.patching.metrics import Measure


def two(logits: torch.Tensor) -> torch.Tensor:
    return logits[:, -1, 2:4]


def test_of_a_linear_model_what_goes_takes_its_share_along() -> None:
    model, ids = LinearModel().double().eval(), some_ids(1, 10)
    (found,) = gradient_x_input(model, ids, metric=two)
    curve = deletion_curve(model, ids, scores=found.scores, metric=two)
    largest_first = found.scores.sort(dim=-1, descending=True).values
    left = found.total[:, None] - torch.cat([torch.zeros(2, 1), largest_first.cumsum(dim=-1)], dim=-1)
    assert close(curve.values, left)
    assert close(curve.random[:, [0, -1]], left[:, [0, -1]])
    assert (curve.values <= curve.random + 1e-9).all()
    assert curve.to_dict()["shares"] == list(SHARES)


def test_a_share_of_the_inputs_is_the_nearest_whole_number() -> None:
    model, ids = LinearModel().double().eval(), some_ids(1, 4)
    (found,) = gradient_x_input(model, ids, metric=two)
    curve = deletion_curve(model, ids, scores=found.scores, metric=two, shares=(0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.9))
    gone = deletion_curve(model, ids, scores=found.scores, metric=two, shares=(0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 1.0))
    assert close(curve.values, gone.values)
    assert not close(gone.values[:, 1], gone.values[:, 0])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_order_is_better_than_random_and_the_wrong_one_is_worse(sign: int) -> None:
    """Whether the number falls or rises while the inputs go."""
    model, ids = LinearModel().double().eval(), some_ids(1, 10)
    metric: Measure = lambda logits: sign * logits[:, -1, 2]  # noqa: E731
    (found,) = gradient_x_input(model, ids, metric=metric)
    best, worst = (
        deletion_curve(model, ids, scores=scores, metric=metric, n_random=64).faithfulness
        for scores in (found.scores, -found.scores)
    )
    assert best is not None
    assert worst is not None
    assert best > 0 > worst
    assert best == pytest.approx(-worst, rel=0.3)


def test_outputs_that_rise_and_fall_do_not_cancel_and_where_nothing_changes_no_order_is_faithful() -> None:
    curve = DeletionCurve(
        (0.0, 0.5, 1.0), torch.tensor([[3.0, 1, 1], [1, 0, 3]]), torch.tensor([[3.0, 2, 1], [1, 2, 3]])
    )
    assert curve.faithfulness == pytest.approx((1 / 3 + 2 / 3) / 4)
    model, ids = tiny("gpt2"), some_ids(1, 10)
    flat = deletion_curve(model, ids, scores=torch.rand(1, 10), metric=lambda logits: 0 * logits[:, -1, 0] + 5)
    assert flat.faithfulness is None
    assert flat.to_dict()["faithfulness"] is None


@pytest.mark.parametrize("name", ["transformer", "bert", "llama"])
def test_what_may_not_go_stays(name: str) -> None:
    model, given = tiny(name), inputs(name, batch=1)
    n = sum(one.shape[1] for one in given)
    among = torch.arange(n) % 2 == 0
    scores = torch.randn(2, n, dtype=torch.float64)
    curve = deletion_curve(model, *given, scores=scores, metric=two, among=among, baseline="mean")
    whole = deletion_curve(
        model, *given, scores=scores + 100 * among, metric=two, baseline="mean", shares=(0.0, float(among.sum() / n))
    )
    assert close(curve.values[:, -1], whole.values[:, -1])
    assert close(curve.values[:, -1], curve.random[:, -1])


def test_pixels_go_one_by_one_and_scores_of_something_else_are_refused() -> None:
    model, (picture,) = tiny("vit"), inputs("vit", batch=1)
    metric: Measure = lambda scores: scores[:, 3]  # noqa: E731
    curve = deletion_curve(model, picture, scores=torch.rand(1, 64), metric=metric, at="pixels", shares=(0.0, 0.5, 1.0))
    with torch.no_grad():
        ends = [model(one)[0, 3] for one in (picture, torch.zeros_like(picture))]
    assert close(curve.values[0, [0, 2]], torch.stack(ends))
    with pytest.raises(InputError, match="scores of 5 inputs"):
        deletion_curve(model, picture, scores=torch.rand(1, 5), metric=metric)
