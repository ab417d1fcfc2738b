"""What `export` says of an engine's answers."""

import pytest
import torch

from cutaway.checkpoints.agreement import Agreement, compare_answers

OURS = torch.tensor([1.0, -20.0, 3.0])


def measured(*theirs: float, limit: float = 1e-4):
    return compare_answers("engine", "float32", "numbers", [(OURS[:1], OURS[:1]), (OURS, torch.tensor(theirs))], limit)


def test_the_largest_difference_counts_and_the_limit_is_a_share_of_the_largest_number():
    found = measured(1.0, -20.001, 3.0001)
    assert found.n == 4
    assert (round(found.difference, 4), found.largest) == (0.001, 20.0)
    assert found.holds
    assert not measured(1.0, -20.001, 3.0001, limit=1e-5).holds
    assert " match the model's" in str(found)


def test_what_is_no_number_is_no_agreement():
    for odd in (float("nan"), float("inf")):
        found = measured(1.0, -20.0, odd)
        assert not found.holds
        assert "do not match the model's" in str(found)


def test_a_difference_is_a_share_of_the_largest_number_or_of_1_and_no_number_never_holds():
    def found(ours: list[float], theirs: list[float], limit: float = 0.1) -> Agreement:
        pairs = [(torch.tensor([1.0, -0.5]), torch.tensor([1.0, -0.5])), (torch.tensor(ours), torch.tensor(theirs))]
        return compare_answers("engine", "float32", "numbers", pairs, limit)

    large = found([-8.0, 2.0], [-8.0, 2.8])
    assert (large.n, large.difference, large.largest) == (4, pytest.approx(0.8), 8.0)
    assert large.share == pytest.approx(0.1)
    small = found([0.01], [0.06])
    assert (small.largest, small.share) == (1.0, pytest.approx(0.05))
    assert (small.holds, found([0.01], [0.06], limit=0.04).holds) == (True, False)
    for odd in (float("nan"), float("inf"), -float("inf")):
        assert not found([1.0], [odd]).holds
    assert "do not match the model's" in str(found([1.0], [float("nan")]))
    assert "numbers from engine match the model's" in str(small)
