"""Greedy decoding: read the prompt at once, then take the likeliest token, again and again, until a text ends.

The prompt is read in one pass that fills the cache; after it, each new token costs one step.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel

Ids = Int[Tensor, "batch seq"]
New = Int[Tensor, "batch new"]
Real = Bool[Tensor, "batch seq"] | None
Hidden = Float[Tensor, "batch seq d_model"]


@torch.no_grad()
def greedy(model: DecoderModel, ids: Ids, *, n: int, real: Real = None, end_ids: Sequence[int] | None = None) -> New:
    """At most `n` new tokens for each prompt; behind its end a row is padded.

    Prompts of different lengths are padded, left or right, and `real` says which tokens are no padding. `end_ids` are
    the tokens that end a text, the model's own unless given.
    """
    if isinstance(model, EncoderDecoderModel):
        raise InputError("this model reads a source and writes a target: use greedy_translate")
    check(model, ids, "language_model", n)
    cache = model.new_cache(len(ids), ids.shape[1] + n - 1)
    hidden = last_real(model.hidden(ids, real=real, cache=cache), real)
    return likeliest(model, hidden, lambda new: model.hidden(new, cache=cache), n, end_ids)


@torch.no_grad()
def greedy_translate(
    model: EncoderDecoderModel,
    source: Ids,
    *,
    n: int,
    real: Real = None,
    start_id: int | None = None,
    end_ids: Sequence[int] | None = None,
) -> New:
    """At most `n` tokens of a target for each source; behind its end a row is padded."""
    check(model, source, "translate", n)
    start_id = model.config.start_id if start_id is None else start_id
    if start_id is None:
        raise InputError("this model does not say what a target begins with: give `start_id`")
    cache = model.new_memory_cache(model.encode(source, real), real, n)
    first = torch.full((len(source), 1), start_id, device=source.device)
    hidden = model.decode(first, cache=cache)
    return likeliest(model, hidden, lambda new: model.decode(new, cache=cache), n, end_ids)


def likeliest(
    model: DecoderModel, hidden: Hidden, read: Callable[[Ids], Hidden], n: int, end_ids: Sequence[int] | None
) -> New:
    """From the last hidden states on: score, choose, `read` what was chosen, until every row has ended."""
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    ends = torch.tensor(list(end_ids), dtype=torch.long, device=hidden.device)
    pad_id = model.config.pad_id if model.config.pad_id is not None else next(iter(end_ids), 0)
    ended = torch.zeros(len(hidden), dtype=torch.bool, device=hidden.device)
    chosen: list[Tensor] = []
    while True:
        best = model.head(hidden[:, -1:]).argmax(dim=-1)[:, 0].masked_fill(ended, pad_id)
        chosen.append(best)
        ended = ended | torch.isin(best, ends)
        if len(chosen) == n or bool(ended.all()):
            return torch.stack(chosen, dim=1)
        hidden = read(best[:, None])


def last_real(hidden: Hidden, real: Real) -> Float[Tensor, "batch 1 d_model"]:
    """The hidden state of each row's last real token."""
    if real is None:
        return hidden[:, -1:]
    last = (torch.arange(real.shape[1], device=real.device) * real).amax(dim=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), last][:, None]


def check(model: DecoderModel, ids: Tensor, task: str, n: int) -> None:
    if model.config.task != task:
        raise InputError(f"a model for task={model.config.task!r} scores no next token; one for {task!r} does")
    if model.training:
        raise InputError("this model is in training and drops out at random: call model.eval() first")
    if not isinstance(ids, Tensor):
        raise InputError(f"ids is a {type(ids).__name__}: encode a text first, torch.tensor([tokenizer.encode(text)])")
    if ids.ndim != 2:
        raise InputError(f"ids of shape {tuple(ids.shape)}: expected (batch, seq); one sequence is ids[None]")
    if n < 1:
        raise InputError(f"n={n}: at least one token is to be written")
    read = ids.shape[1] if task == "language_model" else 1
    if model.max_len is not None and read + n - 1 > model.max_len:
        raise InputError(
            f"after {read} tokens at most n={model.max_len - read + 1} more fit into max_len={model.max_len}"
        )
