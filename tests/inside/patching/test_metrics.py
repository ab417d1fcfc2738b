"""Metrics: one number for each row, the same from the whole logits and from those that it asks for."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from cutaway.errors import InputError
from cutaway.inside.patching.metrics import (
    Kl,
    Logit,
    LogitDifference,
    LogProbability,
    Metric,
    Probability,
    at_positions,
    last_real,
)

LOGITS = torch.randn(3, 5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
ROW, OWN = [[0], [1], [2]], [[0, 1], [1, 2], [3, 3]]


@pytest.mark.parametrize("metric", [LogProbability(4), Probability(2), Kl(LOGITS.flip(0).bfloat16())], ids=str)
def test_logits_in_16_bits_are_measured_in_32(metric: Metric) -> None:
    given = LOGITS.bfloat16() * 8
    assert metric(given).dtype == torch.float32
    assert torch.equal(metric(given), metric(given.float()))


@pytest.mark.parametrize(
    ("metric", "by_hand"),
    [
        (Logit(4), LOGITS[:, -1, 4]),
        (LogitDifference(4, 7), LOGITS[:, -1, 4] - LOGITS[:, -1, 7]),
        (LogitDifference([4, 5, 6], 7, at=2), LOGITS[range(3), 2, [4, 5, 6]] - LOGITS[:, 2, 7]),
        (LogProbability(torch.tensor([1, 2, 3])), LOGITS.log_softmax(-1)[range(3), -1, [1, 2, 3]]),
        (Probability(2, at=torch.tensor([0, 1, 4])), LOGITS.softmax(-1)[range(3), [0, 1, 4], 2]),
        (Logit(4, at=(0, -1)), (LOGITS[:, 0, 4] + LOGITS[:, -1, 4]) / 2),
        (Logit(4, at=torch.tensor([[0, 1], [1, 2], [3, 3]])), LOGITS[ROW, OWN, 4].mean(dim=1)),
        (
            Kl(LOGITS.flip(0), at=None),
            kl_div(LOGITS.log_softmax(-1), LOGITS.flip(0).log_softmax(-1), reduction="none", log_target=True)
            .sum(dim=-1)
            .mean(dim=-1),
        ),
    ],
)
def test_they_are_what_they_say_and_read_only_what_they_ask_for(metric: Metric, by_hand: Tensor) -> None:
    assert torch.allclose(metric(LOGITS), by_hand, rtol=1e-12)
    asked = at_positions(LOGITS, metric.positions(3, 5, LOGITS.device))
    assert torch.equal(metric.read(asked).mean(dim=1), metric(LOGITS))


def test_of_a_classifier_they_read_the_labels() -> None:
    assert torch.equal(Logit(2)(LOGITS[:, 0]), LOGITS[:, 0, 2])
    assert (Kl(LOGITS[:, 0])(LOGITS[:, 0]).abs() < 1e-15).all()


def test_the_last_real_token() -> None:
    real = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 0]], dtype=torch.bool)
    assert last_real(real).tolist() == [1, 2, 2, 0]


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (Logit(11), "token 11 is outside 0…10"),
        (Logit(-1), "token -1 is outside"),
        (Logit([1, 2]), "2 tokens for a batch of 3"),
        (Logit(1, at=5), "reads position 5 of 5"),
        (Logit(1, at=torch.tensor([0, 1])), "2 rows for a batch of 3"),
        (Kl(LOGITS[:, :, :4]), "the reference of Kl"),
    ],
)
def test_what_is_not_there_is_refused(metric: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        metric(LOGITS)
