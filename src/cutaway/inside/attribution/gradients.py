"""A metric as a function of the values at some taps, and its gradients there.

A *metric* maps the logits of each row to one number, or one for each of several outputs. The taps follow the
embeddings; their values are replaced by leaves of the graph. The model is not changed, and no gradients of its weights
are computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.attribution.result import Attribution
from cutaway.inside.patching.metrics import Measure
from cutaway.inside.residual.decompose import check_gradients, check_model
from cutaway.model.embeddings import Embedding, PatchEmbedding
from cutaway.model.finite import check_scores
from cutaway.model.tap import edit, watch

PIXELS = "pixels"


@dataclass(frozen=True, eq=False)
class Gradients:
    """A model, its inputs, a metric, and the taps that the metric is attributed to."""

    model: Any  # without the wrapper of torch.compile
    inputs: tuple[Tensor, ...]
    more: dict[str, Any]
    metric: Measure
    at: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", check_model(self.model, self.more))
        check_gradients(self.model)
        names = {end for part in self.embeddings.values() for end in part.taps} - {"positions", "segments"}
        names |= {PIXELS} if self.reads_pictures else set()
        if self.at is not None and self.at not in names:
            raise InputError(f"at={self.at!r}: of this model it may be {', '.join(sorted(names))}")

    @property
    def embeddings(self) -> dict[str, Embedding | PatchEmbedding]:
        """The embeddings in the order of the inputs: source, target."""
        parts = self.model.named_children()
        return {name: part for name, part in parts if isinstance(part, Embedding | PatchEmbedding)}

    @property
    def reads_pictures(self) -> bool:
        return any(isinstance(part, PatchEmbedding) for part in self.embeddings.values())

    @property
    def pixels(self) -> bool:
        return self.at == PIXELS

    @property
    def places(self) -> list[str]:
        """The taps that the metric is attributed to."""
        return self.taps(self.at or ("patches" if self.reads_pictures else "tokens"))

    def taps(self, name: str) -> list[str]:
        return [f"{part}.{name}" for part in self.embeddings]

    @torch.no_grad()
    def values(self, edits: dict[str, Any] | None = None, pictures: Tensor | None = None) -> list[Tensor]:
        """The values at these taps, in this run or in one with edits or other images."""
        inputs = self.inputs if pictures is None else (pictures, *self.inputs[1:])
        if self.pixels:
            return [inputs[0]]
        with edit(self.model, edits or {}), watch(self.model, *self.places) as seen:
            self.model.hidden(*inputs, **self.more)
        return [seen[place] for place in self.places]

    def metrics(self, values: Sequence[Tensor], copies: int) -> Float[Tensor, "copy batch output"]:
        """The metric with these values at the taps; it is called with one copy of the batch at a time."""
        inputs = [_repeated(one, copies) for one in self.inputs]
        more = {name: _repeated(one, copies) for name, one in self.more.items()}
        if self.pixels:
            logits = self.model(values[0], *inputs[1:], **more)
        else:
            with edit(
                self.model, {place: replace_with(value) for place, value in zip(self.places, values, strict=True)}
            ):
                logits = self.model(*inputs, **more)
        each = [self.metric(some) for some in logits.chunk(copies)]
        if not all(isinstance(one, Tensor) for one in each):
            raise InputError(f"the metric gave a {type(each[0]).__name__}: it has to give a tensor")
        found = torch.stack(each)
        n_rows = len(self.inputs[0])
        if found.ndim not in (2, 3) or found.shape[1] != n_rows:
            raise InputError(
                f"the metric gave {tuple(found.shape[1:])} for {n_rows} rows: one number for each row, or one for each "
                "row and output"
            )
        return found if found.ndim == 3 else found[..., None]

    def slopes(self, values: Sequence[Tensor], copies: int) -> tuple[Tensor, list[Tensor]]:
        """The metric (copy batch output), and its gradient at each tap (output copy batch …), from one forward pass."""
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_() for value in values]
            found = self.metrics(leaves, copies)
            if not found.requires_grad:
                raise InputError("the metric has no gradient: it must be computed from the logits, without no_grad")
            n = found.shape[-1]
            every = [
                torch.autograd.grad(
                    found[..., j].sum(), leaves, retain_graph=j + 1 < n, allow_unused=True, materialize_grads=True
                )
                for j in range(n)
            ]
        return found.detach(), [torch.stack(of).unflatten(1, (copies, -1)) for of in zip(*every, strict=True)]

    def attributions(
        self,
        method: str,
        scores: Float[Tensor, "output batch input"],
        total: Float[Tensor, "batch output"],
        of_baseline: Float[Tensor, "batch output"] | None = None,
        steps: int | None = None,
    ) -> list[Attribution]:
        """An `Attribution` for each row, with numbers for the names of inputs and outputs."""
        check_scores(self.model, total, scores)
        errors: list[float | None] = [None] * len(total)
        if of_baseline is not None:
            wanted = total - of_baseline
            gap = (scores.sum(dim=-1).T - wanted).abs().amax(dim=1)
            errors = (gap / wanted.abs().amax(dim=1).clamp(min=torch.finfo(gap.dtype).tiny)).tolist()
        parts = () if self.reads_pictures else tuple(ids.shape[1] for ids in self.inputs[: len(self.embeddings)])
        return [
            Attribution(
                method=method,
                scores=scores[:, row],
                inputs=tuple(map(str, range(scores.shape[-1]))),
                outputs=tuple(map(str, range(len(scores)))),
                total=total[row],
                of_baseline=None if of_baseline is None else of_baseline[row],
                error=errors[row],
                steps=steps,
                parts=parts if len(parts) > 1 else (),
                shape=self._shape(),
            )
            for row in range(len(total))
        ]

    def _shape(self) -> tuple[int, int] | None:
        for part in self.embeddings.values():
            if isinstance(part, PatchEmbedding) and self.at != "output":
                side = part.image_size if self.pixels else part.image_size // part.patch_size
                return side, side
        return None


def replace_with(value: Tensor) -> Callable[[Tensor], Tensor]:
    """The edit that replaces a value."""
    return lambda _: value


def _repeated(one: Any, copies: int) -> Any:
    return one.repeat(copies, *[1] * (one.ndim - 1)) if isinstance(one, Tensor) else one
