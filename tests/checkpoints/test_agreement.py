"""What `export` says of an engine's answers."""

import torch

from cutaway.checkpoints.agreement import compare_answers

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
