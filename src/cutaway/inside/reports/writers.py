"""Direct logit attribution of an answer: which heads and feed-forwards wrote it."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Writers:
    """By how much each writer puts an output ahead of the answer that it is compared with."""

    names: tuple[str, ...]
    scores: Float[Tensor, "writer output"]  # a column adds up to the difference of the two logits
    outputs: tuple[str, ...]
    versus: tuple[str, ...]  # the runner-up, unless another was asked for; "" if there is no other answer

    def best(self, n: int = 10) -> list[tuple[str, list[float]]]:
        """The writers with the largest scores, positive or negative."""
        order = self.scores.abs().amax(dim=1).argsort(descending=True, stable=True)[:n].tolist()
        return [(self.names[i], self.scores[i].tolist()) for i in order]

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "scores": self.scores.tolist(),
            "outputs": list(self.outputs),
            "versus": list(self.versus),
        }
