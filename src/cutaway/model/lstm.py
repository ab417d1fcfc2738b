"""Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000): one layer.

At every step the layer reads x and history its state h and its cell c into the next ones:

    i = σ(W_i x + U_i h + b_i)      input gate: how much of what is new is added
    f = σ(W_f x + U_f h + b_f)      forget gate: how much of the cell is kept
    g = tanh(W_g x + U_g h + b_g)   what is new
    o = σ(W_o x + U_o h + b_o)      output gate: how much of the cell is passed on
    c ← f ⊙ c + i ⊙ g,   h ← o ⊙ tanh(c)

The cell is a sum, like the residual stream: what was added stays until the forget gate removes it. But everything that
the past contributes has to go through one h, and the steps of a text cannot be computed in parallel.

`torch.nn.LSTM` computes all steps of a text (on a GPU in one kernel). `LSTM.apply_gates` is the formula, for single
steps: if they are edited, if documents begin within a row, or if there is a cache.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cutaway.model.tap import Part

Layer = TypeVar("Layer", bound=Part)
Steps = Float[Tensor, "batch seq d"]
Order = Int[Tensor, "batch seq"]  # the place of each token in the order of reading

GATES = {
    "input_gate": "i: how much of what is new is added",
    "forget_gate": "f: how much of the cell is kept",
    "new": "g: what is new",
    "output_gate": "o: how much of the cell is passed on",
    "cell": "c: what the layer remembers",
    "state": "h: the output, for the next layer and for the next step",
}
FORGET_BIAS = ("bias_hh_l0", "enter.bias")  # of LSTMEngine, and of AttentiveLSTM
# The engine returns nothing but states. To read the other values, the steps are computed a second time besides, so that
# no bit of the output changes.
NOT_FROM_ENGINE = tuple(name for name in GATES if name != "state")


class StepValues(NamedTuple):
    """The values of one step or more, with the names of `GATES`."""

    input_gate: Steps
    forget_gate: Steps
    new: Steps
    output_gate: Steps
    cell: Steps
    state: Steps


class Stepwise(Part):
    """A part that computes one step after another. Reading a tap gives all steps; an edit gets one step at a time."""

    def tap_step(self, name: str, value: Tensor) -> Tensor:
        """The value of one step, which an edit may replace."""
        return self.tap(name, value) if self.edits(name) else value

    def tap_steps(self, name: str, steps: Callable[[], Tensor]) -> None:
        """All steps at once, if the tap is read; an edited tap was read by `tap_step` already."""
        if self.reads(name) and not self.edits(name):
            self.tap(name, steps())


class Gated(Stepwise):
    """What every LSTM does with its gates, however they are computed."""

    taps = GATES

    def apply_gates(self, gates: Float[Tensor, "batch some gates"], cell: Float[Tensor, "batch some d"]) -> StepValues:
        """One step. The cell, a sum over all steps, keeps its precision."""
        i, f, g, o = gates.to(cell.dtype).chunk(4, dim=-1)
        i, f = self.tap_step("input_gate", i.sigmoid()), self.tap_step("forget_gate", f.sigmoid())
        g, o = self.tap_step("new", g.tanh()), self.tap_step("output_gate", o.sigmoid())
        cell = self.tap_step("cell", f * cell + i * g)
        return StepValues(i, f, g, o, cell, self.tap_step("state", o * cell.tanh()))

    def tap_history(
        self, history: Sequence[StepValues], order: Order | None = None, names: Iterable[str] = GATES
    ) -> None:
        for name in names:
            self.tap_steps(name, partial(_all_steps, history, name, order))


class LSTMEngine(nn.LSTM):
    """torch's layer, with types for its weights."""

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor


class LSTM(Gated):
    """One layer in one direction. `order` is that in which the tokens of each row are read: see `forward_order`."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_out = d_out
        self.engine = LSTMEngine(d_in, d_out, batch_first=True)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_in"],
        *,
        order: Order | None = None,
        starts: Bool[Tensor, "batch seq"] | None = None,
    ) -> Float[Tensor, "batch seq d_out"]:
        """The state after each token, starting from zeros. `starts` marks the first token of each document."""
        x = reorder(x, order)
        if starts is not None or self.edits(*GATES):
            history = self._one_by_one(x, starts)
            self.tap_history(history, order)
            return _all_steps(history, "state", order)
        if self.reads(*NOT_FROM_ENGINE):
            self.tap_history(self._one_by_one(x, None), order, NOT_FROM_ENGINE)
        return self.tap("state", restore_order(self._all_at_once(x), order))

    def from_input(self, x: Float[Tensor, "batch seq d_in"]) -> Float[Tensor, "batch seq gates"]:
        """W x + b for the gates of all steps at once, which needs no state."""
        return F.linear(x, self.engine.weight_ih_l0, self.engine.bias_ih_l0 + self.engine.bias_hh_l0)

    def step(
        self,
        from_input: Float[Tensor, "batch some gates"],
        state: Float[Tensor, "batch some d_out"],
        cell: Float[Tensor, "batch some d_out"],
    ) -> StepValues:
        return self.apply_gates(from_input + F.linear(state, self.engine.weight_hh_l0), cell)

    def _all_at_once(self, x: Float[Tensor, "batch seq d_in"]) -> Float[Tensor, "batch seq d_out"]:
        """In the precision of the weights, because rounding would add up over the steps.

        (Autocast's version of cuDNN also computes in float16, whatever type is asked for.)
        """
        if x.is_meta:  # for counting operations, one step for all tokens is enough
            states = x.new_zeros(*x.shape[:2], self.d_out)
            return self.step(self.from_input(x), states, states).state
        was = self.engine.training
        self.engine.train(torch.is_grad_enabled())  # otherwise cuDNN has no backward pass; there is no dropout in it
        try:
            if not torch.is_autocast_enabled(x.device.type):
                return self.engine(x)[0]
            with torch.autocast(x.device.type, enabled=False):
                return self.engine(x.to(self.engine.weight_hh_l0.dtype))[0]
        finally:
            self.engine.train(was)

    def _one_by_one(
        self, x: Float[Tensor, "batch seq d_in"], starts: Bool[Tensor, "batch seq"] | None
    ) -> list[StepValues]:
        state = cell = x.new_zeros(len(x), 1, self.d_out, dtype=self.engine.weight_hh_l0.dtype)
        history = []
        for t, from_input in enumerate(self.from_input(x).split(1, dim=1)):
            if starts is not None:
                state, cell = (old.masked_fill(starts[:, t, None, None], 0.0) for old in (state, cell))
            history.append(self.step(from_input, state, cell))
            state, cell = history[-1].state, history[-1].cell
        return history


class Layers(nn.ModuleList, Generic[Layer]):
    """Layers on top of each other, numbered from 0."""

    def __getitem__(self, number: int) -> Layer:  # type: ignore[override]
        return cast(Layer, super().__getitem__(number))

    def __iter__(self) -> Iterator[Layer]:
        return (self[number] for number in range(len(self)))


def _all_steps(history: Sequence[StepValues], name: str, order: Order | None) -> Steps:
    return restore_order(torch.cat([getattr(step, name) for step in history], dim=1), order)


@torch.no_grad()
def draw_weights(model: nn.Module) -> None:
    """The first weights of a recurrent model: matrices uniform in ±1/√(width of the input), as in torch; biases 0, but
    1 for forget gates, so that a new layer keeps what it has read (Jozefowicz et al. 2015).

    Embeddings have variance 1/d_model, which suits de-embedding, and are multiplied by √d_model at the input.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            bound = (3.0 if "embedding" in name else 1.0) ** 0.5 * parameter.shape[1] ** -0.5
            parameter.uniform_(-bound, bound)
        else:
            parameter.zero_()
            if name.endswith(FORGET_BIAS):
                parameter.chunk(4)[1].fill_(1.0)


# --- orders of reading ----------------------------------------------------------------------------------------------


def forward_order(real: Bool[Tensor, "batch seq"] | None) -> Order | None:
    """From left to right with padding last, where it has no effect; None if there is no padding."""
    if real is None:
        return None
    n_real = real.sum(dim=1, keepdim=True)
    return torch.where(real, real.cumsum(dim=1), n_real + (~real).cumsum(dim=1)) - 1


def backward_order(tokens: Int[Tensor, "batch seq"], real: Bool[Tensor, "batch seq"] | None) -> Order:
    """From the last real token to the first, with padding last."""
    if real is None:
        return torch.arange(tokens.shape[1] - 1, -1, -1, device=tokens.device).expand(tokens.shape)
    n_real = real.sum(dim=1, keepdim=True)
    return torch.where(real, n_real - real.cumsum(dim=1), n_real + (~real).cumsum(dim=1) - 1)


def reorder(x: Float[Tensor, "batch seq d"], order: Order | None) -> Float[Tensor, "batch seq d"]:
    """The tokens of each row in the order of reading."""
    return x if order is None else torch.zeros_like(x).scatter(1, order[:, :, None].expand_as(x), x)


def restore_order(x: Float[Tensor, "batch seq d"], order: Order | None) -> Float[Tensor, "batch seq d"]:
    """The inverse of `reorder`."""
    return x if order is None else x.gather(1, order[:, :, None].expand_as(x))
