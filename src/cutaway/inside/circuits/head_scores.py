"""Scores of heads by where they look: one number for each head (`decoder.3.attention.7`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.model.model import Model
from cutaway.model.tap import uncompiled, watch

Pattern = Float[Tensor, "batch head query key"]
At = Int[Tensor, " batch"]


@dataclass(frozen=True, eq=False)
class HeadScores:
    """A score for each head; `what` names the score.

    >>> HeadScores("a score", {"decoder.0.attention.1": 0.5}).best(1)
    """

    what: str
    scores: dict[str, float]

    def best(self, n: int = 10) -> list[tuple[str, float]]:
        """The heads that score highest."""
        return sorted(self.scores.items(), key=lambda item: -item[1])[:n]

    def to_dict(self) -> dict[str, Any]:
        return {"what": self.what, "scores": self.scores}

    @classmethod
    def of(cls, what: str, values: Mapping[str, Float[Tensor, " head"]]) -> "HeadScores":
        return cls(what, {f"{part}.{head}": x for part, each in values.items() for head, x in enumerate(each.tolist())})


@checked
def attention_patterns(model: nn.Module, *inputs: Tensor, parts: str = "*", **more: Any) -> dict[str, Pattern]:
    """The attention pattern of every head, by part (`decoder.3.attention`).

    >>> attention_patterns(model, ids)["decoder.0.attention"].shape
    """
    body: Model = uncompiled(model)  # type: ignore[assignment]
    with torch.no_grad(), watch(body, f"{parts}.pattern") as seen:
        body.hidden(*inputs, **more)
    return {tap.removesuffix(".pattern"): value for tap, value in seen.items()}


def looks_of_heads(pattern: Pattern, query: At, key: At) -> Float[Tensor, "batch head"]:
    """The attention weights from one position of each row to another."""
    rows = torch.arange(len(pattern), device=pattern.device)
    return pattern[rows, :, query.to(pattern.device), key.to(pattern.device)]


@checked
def attention_between(what: str, found: Mapping[str, Pattern], query: At, key: At) -> HeadScores:
    """How much each head looks from position `query` to `key` of each row, the mean over rows.

    >>> attention_between("last to first", attention_patterns(model, ids), torch.tensor([3]), torch.tensor([0])).best(1)
    """
    return HeadScores.of(
        what, {part: looks_of_heads(pattern, query, key).mean(dim=0) for part, pattern in found.items()}
    )
