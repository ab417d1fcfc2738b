"""A question to a model: a row of inputs, a metric, and names for both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.attribution.by_gradient import gradient_x_input, integrated_gradients
from cutaway.inside.attribution.gradients import Gradients
from cutaway.inside.attribution.reference_inputs import COLOURS, Baselines, colour_values
from cutaway.inside.attribution.result import ATTENTION_METHODS, METHODS, Attribution, token_names
from cutaway.inside.attribution.rollout import attention_rollout
from cutaway.inside.patching.metrics import Measure
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer


@dataclass(frozen=True, eq=False)
class Question:
    """One row of inputs, the metric that is asked about, and names for inputs and outputs."""

    model: Model
    inputs: tuple[Tensor, ...]
    more: dict[str, Any]
    metric: Measure
    outputs: tuple[str, ...]
    reads: Float[Tensor, "output position"]  # the position of each output, for attention methods
    tokenizer: Tokenizer | None = None
    output_ids: tuple[int, ...] | None = None
    at: str | None = None
    right: tuple[int, ...] = ()  # the token of each output, or the number of its label
    wrong: tuple[int, ...] = ()  # what it is compared with, if anything
    colours: tuple[Sequence[float], Sequence[float]] | None = (
        None  # for an image: the mean and deviation of its normalisation
    )

    def attribute(self, method: str, *, keep_special: bool = True, **options: Any) -> Attribution:
        if method not in METHODS:
            raise InputError(f"method={method!r} is not one of {', '.join(METHODS)}")
        asking = {**self.more, **options}
        if method in ATTENTION_METHODS:
            if self.at == "pixels":
                raise InputError(
                    f'method={method!r} reads attention between patches: at="patches", or a gradient method'
                )
            weights = "moved" if method == "value_weighted" else "pattern"
            return self.named(self._read(attention_rollout(self.model, *self.inputs, weights=weights, **asking)[0]))
        if method == "gradient_x_input":
            return self.named(gradient_x_input(self.model, *self.inputs, metric=self.metric, at=self.at, **asking)[0])
        asking["baseline"] = self._seen(asking.get("baseline", self.baseline))
        if keep_special and self.tokenizer is not None:
            asking.setdefault("keep", self.special)
        return self.named(integrated_gradients(self.model, *self.inputs, metric=self.metric, at=self.at, **asking)[0])

    @property
    def baseline(self) -> Baselines:
        return self._seen("black") if self.tokenizer is None else "mean"

    def _seen(self, baseline: Baselines) -> Baselines:
        """Black and white with the normalisation of this image, which the model's config may not have."""
        if self.colours is None or not isinstance(baseline, str) or baseline not in COLOURS:
            return baseline
        asked = Gradients(self.model, self.inputs, self.more, self.metric, self.at)
        return tuple(colour_values(asked, baseline, *self.colours))

    @property
    def special(self) -> tuple[Tensor, ...]:
        """The special tokens of each input."""
        assert self.tokenizer is not None
        ids = torch.tensor(sorted(self.tokenizer.special_ids().values()), device=self.model.device)
        return tuple(torch.isin(one, ids) for one in self.inputs)

    @property
    def texts(self) -> dict[str, tuple[str, ...]]:
        """The names of the positions of each input."""
        if self.tokenizer is None:
            n = self.reads.shape[1] - 1
            side = int(n**0.5)
            return {"patches": ("[class]", *(f"{row},{column}" for row in range(side) for column in range(side)))}
        each = [token_names(self.tokenizer, one[0].tolist()) for one in self.inputs]
        return dict(zip(("source", "target") if len(each) == 2 else ("text",), each, strict=True))

    def _read(self, found: Attribution) -> Attribution:
        scores = self.reads.to(found.scores) @ found.scores
        if self.tokenizer is not None:
            return replace(found, scores=scores, total=scores.sum(dim=-1))
        side = int((scores.shape[-1] - 1) ** 0.5)  # the class token is no part of the picture
        scores = scores[:, 1:]
        names = tuple(map(str, range(side * side)))
        return replace(found, scores=scores, total=scores.sum(dim=-1), inputs=names, shape=(side, side))

    def named(self, found: Attribution) -> Attribution:
        if self.tokenizer is None:
            return replace(found, outputs=self.outputs)
        each = [one[0].tolist() for one in self.inputs]
        return replace(
            found,
            inputs=tuple(name for ids in each for name in token_names(self.tokenizer, ids)),
            outputs=self.outputs,
            input_ids=tuple(id for ids in each for id in ids),
            output_ids=self.output_ids,
        )
