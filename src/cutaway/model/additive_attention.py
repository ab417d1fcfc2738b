"""Attention before the Transformer (Bahdanau et al. 2015): the decoder's last state s looks at every source word.

    score of source word j   e_j = vᵀ tanh(W s + U h_j)
    pattern                  α = softmax(e)
    context                  Σ_j α_j h_j

A small network scores query and key, where the Transformer takes their dot product; keys and values are both the
encoder's state h_j. It was added so that a long sentence does not have to fit into one vector. The Transformer keeps
attention and drops the recurrence.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cutaway.model.cache import KeysValues
from cutaway.model.dropout import Dropout
from cutaway.model.lstm import Gated, Order, StepValues, Stepwise, reorder, restore_order
from cutaway.model.lstm_cache import PreviousStates
from cutaway.model.masks import Mask

States = Float[Tensor, "batch some d_model"]


class AdditiveAttention(Stepwise):
    """Additive attention with one head. `remember` computes U h once, because it is the same at every step."""

    taps = {
        "scores": "vᵀ tanh(W s + U h), before the mask",
        "pattern": "the softmax of the scores: where each step looks",
        "output": "the context: the mean of the values, weighted by the pattern",
    }
    n_heads = 1

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_head = d_model
        self.query, self.key = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model, bias=False)
        self.score = nn.Linear(d_model, 1, bias=False)

    def remember(self, memory: Float[Tensor, "sentence source d_model"]) -> KeysValues:
        return self.key(memory)[:, None], memory[:, None]

    def forward(
        self, state: States, memory: KeysValues, may_look: Bool[Tensor, "#batch 1 source"] | None
    ) -> tuple[States, Float[Tensor, "batch some source"], Float[Tensor, "batch some source"]]:
        """The context of each state, its scores and its pattern."""
        keys, values = memory[0][:, 0], memory[1][:, 0]
        match = (self.query(state)[:, :, None] + keys[:, None]).tanh()
        scores = self.tap_step("scores", self.score(match)[..., 0])
        pattern = self.tap_step("pattern", masked_softmax(scores, may_look).to(values.dtype))
        return self.tap_step("output", pattern @ values), scores, pattern


def masked_softmax(
    scores: Float[Tensor, "batch some source"], may_look: Bool[Tensor, "#batch 1 source"] | None
) -> Float[Tensor, "batch some source"]:
    """Zeros for a row that may look nowhere. (With −∞, its softmax and all gradients would be NaN.)"""
    if may_look is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~may_look, torch.finfo(scores.dtype).min).softmax(dim=-1) * may_look


class AttentiveLSTM(Gated):
    """The decoder's layer: its gates see the last word, the last state and the context that this state attends to.

    Its output is a readout of state, context and word, so that the state does not have to carry everything that the
    next word depends on. (The readout of the paper has maxout units instead of tanh, and its cell is a GRU.)
    """

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.cross = AdditiveAttention(d_model)
        self.enter = nn.Linear(d_model, 4 * d_model)  # for the words, all steps at once
        self.again = nn.Linear(2 * d_model, 4 * d_model, bias=False)  # for state and context, step by step
        self.first = nn.Linear(d_model // 2, d_model)
        self.readout = nn.Linear(3 * d_model, d_model)
        self.dropout = Dropout(dropout)

    def begin(self, memory: KeysValues, mask: Mask) -> tuple[Float[Tensor, "batch d"], Float[Tensor, "batch d"]]:
        """State and cell before the first word. They come from the encoder's backward state at the first source word,
        which has seen the whole source."""
        values = memory[1][:, 0]
        where = torch.zeros(len(values), dtype=torch.long, device=values.device)
        if mask.may_look is not None:
            where = mask.may_look[:, 0, 0].int().argmax(dim=-1).expand(len(values))
        read = values[torch.arange(len(values), device=values.device), where, values.shape[2] // 2 :]
        cell = self.first(read).to(self.enter.weight.dtype)
        return cell.tanh(), cell

    def forward(
        self,
        x: Float[Tensor, "rows seq d_model"],
        memory: KeysValues,
        mask: Mask,
        *,
        order: Order | None = None,
        past: PreviousStates | None = None,
        layer: int = 0,
    ) -> Float[Tensor, "rows seq d_model"]:
        x = reorder(x, order)
        may_look = None if mask.may_look is None else mask.may_look[:, 0]
        found: list[tuple[Tensor, Tensor, Tensor]] = []  # context, scores, pattern of each step

        def advance(from_input: Tensor, state: Tensor, cell: Tensor) -> StepValues:
            found.append(self.cross(state, memory, may_look))
            gates = from_input + self.again(torch.cat([state.to(found[-1][0].dtype), found[-1][0]], dim=-1))
            return self.apply_gates(gates, cell)

        from_input, (state, cell) = self.enter(x), self.begin(memory, mask)
        if past is not None:
            history = past.run(layer, from_input, (state, cell), advance)
        else:
            history, state, cell = [], state[:, None], cell[:, None]
            for step in from_input.split(1, dim=1):
                history.append(advance(step, state, cell))
                state, cell = history[-1].state, history[-1].cell
        self.tap_history(history, order)
        context, scores, pattern = (torch.cat(steps, dim=1) for steps in zip(*found, strict=True))
        self.cross.tap_steps("output", lambda: restore_order(context, order))
        self.cross.tap_steps("scores", lambda: restore_order(scores, order)[:, None])
        self.cross.tap_steps("pattern", lambda: restore_order(pattern, order)[:, None])
        states = torch.cat([turn.state for turn in history], dim=1)
        if past is not None:
            states, context = past.packed(states), past.packed(context)
        readout = self.readout(torch.cat([states.to(context.dtype), context, x.to(context.dtype)], dim=-1)).tanh()
        return restore_order(self.dropout(readout), order)
