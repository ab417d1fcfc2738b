"""Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000): one layer.

At every step the layer reads x and turns its state h and its cell c into the next ones:

    i = σ(W_i x + U_i h + b_i)      how much of the new is let in
    f = σ(W_f x + U_f h + b_f)      how much of the old is kept
    g = tanh(W_g x + U_g h + b_g)   what is new
    o = σ(W_o x + U_o h + b_o)      how much is shown
    c ← f ⊙ c + i ⊙ g,   h ← o ⊙ tanh(c)

The cell is a sum, as the residual stream is: what a gate let in stays until another lets it go. But all that the past
has to say goes through one h, and the steps of a text cannot be taken at once.

`torch.nn.LSTM` takes the steps of a whole text (on a GPU as one kernel); `LSTM.turn` is the formula, and takes them one
by one where somebody edits them, where documents begin within a row, or where a cache is read on from.
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
Order = Int[Tensor, "batch seq"]  # the place at which each token of a row is read

GATES = {
    "input_gate": "i: how much of what is new is let in",
    "forget_gate": "f: how much of the cell is kept",
    "new": "g: what is new",
    "output_gate": "o: how much of the cell is shown",
    "cell": "c: what the layer remembers",
    "state": "h: what it shows, to the layer above and to itself at the next step",
}
FORGET_BIAS = ("bias_hh_l0", "enter.bias")  # of an engine, and of a layer that is written out
BESIDE = tuple(name for name in GATES if name != "state")  # the engine shows its states alone: to read the others, the
# steps are taken once more, beside it, so that no bit of the output changes


class Turn(NamedTuple):
    """The values of some steps, by their names in `GATES`."""

    input_gate: Steps
    forget_gate: Steps
    new: Steps
    output_gate: Steps
    cell: Steps
    state: Steps


class Stepwise(Part):
    """A part that takes one step after another. Whoever reads a tap gets all steps; an edit is given one at a time."""

    def passed(self, name: str, value: Tensor) -> Tensor:
        """The value of one step, on its way."""
        return self.tap(name, value) if self.edits(name) else value

    def show(self, name: str, steps: Callable[[], Tensor]) -> None:
        """All steps at once, to those who read. An edited tap was read as it was edited."""
        if self.reads(name) and not self.edits(name):
            self.tap(name, steps())


class Gated(Stepwise):
    """What every LSTM does with its gates, wherever they come from."""

    taps = GATES

    def turn(self, gates: Float[Tensor, "batch some gates"], cell: Float[Tensor, "batch some d"]) -> Turn:
        """One step. The cell is added to at every one, and keeps its precision."""
        i, f, g, o = gates.to(cell.dtype).chunk(4, dim=-1)
        i, f = self.passed("input_gate", i.sigmoid()), self.passed("forget_gate", f.sigmoid())
        g, o = self.passed("new", g.tanh()), self.passed("output_gate", o.sigmoid())
        cell = self.passed("cell", f * cell + i * g)
        return Turn(i, f, g, o, cell, self.passed("state", o * cell.tanh()))

    def show_turns(self, turns: Sequence[Turn], order: Order | None = None, names: Iterable[str] = GATES) -> None:
        for name in names:
            self.show(name, partial(_all_steps, turns, name, order))


class LSTMEngine(nn.LSTM):
    """torch's layer, whose weights have types."""

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor


class LSTM(Gated):
    """One layer in one direction. `order` says in which order the tokens of each row are read: see `forwards`."""

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
        """The state at every token, from an empty one; `starts` is True where, in reading order, a document begins."""
        x = arranged(x, order)
        if starts is not None or self.edits(*GATES):
            turns = self._one_by_one(x, starts)
            self.show_turns(turns, order)
            return _all_steps(turns, "state", order)
        if self.reads(*BESIDE):
            self.show_turns(self._one_by_one(x, None), order, BESIDE)
        return self.tap("state", back(self._all_at_once(x), order))

    def entered(self, x: Float[Tensor, "batch seq d_in"]) -> Float[Tensor, "batch seq gates"]:
        """What x says to the gates, of all steps at once: no state is needed for it."""
        return F.linear(x, self.engine.weight_ih_l0, self.engine.bias_ih_l0 + self.engine.bias_hh_l0)

    def step(
        self,
        entered: Float[Tensor, "batch some gates"],
        state: Float[Tensor, "batch some d_out"],
        cell: Float[Tensor, "batch some d_out"],
    ) -> Turn:
        return self.turn(entered + F.linear(state, self.engine.weight_hh_l0), cell)

    def _all_at_once(self, x: Float[Tensor, "batch seq d_in"]) -> Float[Tensor, "batch seq d_out"]:
        """In the weights' precision: a rounded state would be rounded again at every step. (And autocast's wrapper of
        cuDNN computes in float16, whatever was asked for.)"""
        if x.is_meta:  # who counts the products need not wait for one step after another
            states = x.new_zeros(*x.shape[:2], self.d_out)
            return self.step(self.entered(x), states, states).state
        was = self.engine.training
        self.engine.train(torch.is_grad_enabled())  # cuDNN has no backward pass otherwise; nothing is dropped out there
        try:
            if not torch.is_autocast_enabled(x.device.type):
                return self.engine(x)[0]
            with torch.autocast(x.device.type, enabled=False):
                return self.engine(x.to(self.engine.weight_hh_l0.dtype))[0]
        finally:
            self.engine.train(was)

    def _one_by_one(self, x: Float[Tensor, "batch seq d_in"], starts: Bool[Tensor, "batch seq"] | None) -> list[Turn]:
        state = cell = x.new_zeros(len(x), 1, self.d_out, dtype=self.engine.weight_hh_l0.dtype)
        turns = []
        for t, entered in enumerate(self.entered(x).split(1, dim=1)):
            if starts is not None:
                state, cell = (old.masked_fill(starts[:, t, None, None], 0.0) for old in (state, cell))
            turns.append(self.step(entered, state, cell))
            state, cell = turns[-1].state, turns[-1].cell
        return turns


class Layers(nn.ModuleList, Generic[Layer]):
    """On top of each other, numbered from 0."""

    def __getitem__(self, number: int) -> Layer:  # type: ignore[override]
        return cast(Layer, super().__getitem__(number))

    def __iter__(self) -> Iterator[Layer]:
        return (self[number] for number in range(len(self)))


def _all_steps(turns: Sequence[Turn], name: str, order: Order | None) -> Steps:
    return back(torch.cat([getattr(turn, name) for turn in turns], dim=1), order)


@torch.no_grad()
def draw_weights(model: nn.Module) -> None:
    """The first weights of a recurrent model: matrices by what goes into them, as torch does; biases 0, and those of
    the forget gates 1, so that a new layer keeps what it reads (Jozefowicz et al. 2015).

    Embeddings have variance 1/d_model, as a de-embedding wants them, and are scaled by √d_model where they go in."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            bound = (3.0 if "embedding" in name else 1.0) ** 0.5 * parameter.shape[1] ** -0.5
            parameter.uniform_(-bound, bound)
        else:
            parameter.zero_()
            if name.endswith(FORGET_BIAS):
                parameter.chunk(4)[1].fill_(1.0)


# --- orders of reading ----------------------------------------------------------------------------------------------


def forwards(real: Bool[Tensor, "batch seq"] | None) -> Order | None:
    """From left to right, and padding last, where it can do no harm; None where that is how the tokens stand."""
    if real is None:
        return None
    n_real = real.sum(dim=1, keepdim=True)
    return torch.where(real, real.cumsum(dim=1), n_real + (~real).cumsum(dim=1)) - 1


def backwards(tokens: Int[Tensor, "batch seq"], real: Bool[Tensor, "batch seq"] | None) -> Order:
    """From the last real token to the first, and padding last."""
    if real is None:
        return torch.arange(tokens.shape[1] - 1, -1, -1, device=tokens.device).expand(tokens.shape)
    n_real = real.sum(dim=1, keepdim=True)
    return torch.where(real, n_real - real.cumsum(dim=1), n_real + (~real).cumsum(dim=1) - 1)


def arranged(x: Float[Tensor, "batch seq d"], order: Order | None) -> Float[Tensor, "batch seq d"]:
    """The rows in the order in which they are read."""
    return x if order is None else torch.zeros_like(x).scatter(1, order[:, :, None].expand_as(x), x)


def back(x: Float[Tensor, "batch seq d"], order: Order | None) -> Float[Tensor, "batch seq d"]:
    """The rows as they stood before `arranged`."""
    return x if order is None else x.gather(1, order[:, :, None].expand_as(x))
