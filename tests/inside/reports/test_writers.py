"""Who wrote an answer: the strongest, for it and against it."""

import torch

from cutaway.inside.reports.writers import Writers


def test_the_strongest_are_those_that_move_an_output_most_in_either_direction() -> None:
    scores = torch.tensor([[1.0, 0.5], [-3.0, 0.0], [0.5, -4.0], [2.0, 2.0], [-2.0, 1.0]])
    found = Writers(("a", "b", "c", "d", "e"), scores, ("x", "y"), ("", ""))
    assert found.best(4) == [("c", [0.5, -4.0]), ("b", [-3.0, 0.0]), ("d", [2.0, 2.0]), ("e", [-2.0, 1.0])]
