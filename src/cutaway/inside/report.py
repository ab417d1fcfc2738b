"""What `look_inside` finds: the answer, and what went on inside while it was given."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from cutaway.decoding.alignment import Alignment
from cutaway.inside.attribution.result import Attribution

Guess = tuple[str, float]


@dataclass(frozen=True, eq=False)
class Writers:
    """By how much each writer puts an output ahead of the one that it is held against: direct logit attribution."""

    names: tuple[str, ...]
    scores: Float[Tensor, "writer output"]  # a column adds up to the difference of the two logits
    outputs: tuple[str, ...]
    versus: tuple[str, ...]  # the runner-up, unless another was asked for; "" where there is nothing to hold against

    def best(self, n: int = 10) -> list[tuple[str, list[float]]]:
        """The writers with the largest numbers, whichever way they point."""
        order = self.scores.abs().amax(dim=1).argsort(descending=True, stable=True)[:n].tolist()
        return [(self.names[i], self.scores[i].tolist()) for i in order]

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "scores": self.scores.tolist(),
            "outputs": list(self.outputs),
            "versus": list(self.versus),
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found; a part that was not asked for, or that this kind of model has not, is None."""

    question: str  # next word, translation, blank, label, picture
    given: str
    answer: str
    tokens: dict[str, tuple[str, ...]]  # the inputs by name: text; source, target; patches
    outputs: tuple[str, ...]
    guesses: list[list[Guess]]  # for each output the likeliest, with their probabilities
    asked: list[Guess]  # of each output: what is asked about, and its probability
    attribution: Attribution | None = None
    writers: Writers | None = None
    patterns: dict[str, Float[Tensor, "head query key"]] | None = None
    alignment: Alignment | None = None
    image: np.ndarray | None = None

    def names_of(self, part: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the queries and the keys of an attention (`decoder.3.cross`)."""
        first, *_, last = [*self.tokens.values()] * 2
        if part.endswith(".cross"):
            return last, first
        return (first, first) if part.startswith("encoder") else (last, last)

    def looks(self) -> list[dict[str, Any]]:
        """For every head its strongest look, away from the query itself and from the first token, if it has any."""
        found = []
        for part, pattern in (self.patterns or {}).items():
            queries, keys = self.names_of(part)
            for head, weights in enumerate(pattern):
                away = weights.clone()
                if not part.endswith(".cross"):
                    away.fill_diagonal_(0.0)
                    away[:, 0] = 0.0
                if not away.any():
                    continue
                query, key = divmod(int(away.argmax()), len(keys))
                look = {"query": query, "key": key, "from": queries[query], "to": keys[key]}
                found.append({"head": f"{part}.{head}", **look, "weight": weights[query, key].item()})
        return found

    def to_dict(self, *, whole_patterns: bool = False) -> dict[str, Any]:
        """As JSON writes it; patterns are the square of a text for each head, so that only their peaks are said."""
        said: dict[str, Any] = {
            "question": self.question,
            "given": self.given,
            "answer": self.answer,
            "tokens": {name: list(tokens) for name, tokens in self.tokens.items()},
            "outputs": list(self.outputs),
            "guesses": [[{"text": text, "probability": p} for text, p in some] for some in self.guesses],
            "asked": [{"text": text, "probability": p} for text, p in self.asked],
        }
        for name in ("attribution", "writers"):
            if (part := getattr(self, name)) is not None:
                said[name] = part.to_dict()
        if self.patterns is not None:
            said["heads"] = self.looks()
            if whole_patterns:
                said["patterns"] = {part: pattern.tolist() for part, pattern in self.patterns.items()}
        if self.alignment is not None:
            links = [{"source": a, "target": b, "weight": weight} for a, b, weight in self.alignment.links()]
            said["alignment"] = {"links": links, "pharaoh": self.alignment.pharaoh()}
        return said
