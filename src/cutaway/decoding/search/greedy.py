"""Greedy decoding of a batch of ids: the likeliest token, again and again, until a text ends.

This is the engine for those who have tensors: padded prompts or sources in, padded texts out.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cutaway.arguments import checked
from cutaway.decoding.engine.engine import Engine
from cutaway.decoding.engine.run import check_jobs as check_jobs
from cutaway.decoding.search.search import GreedySearch, Job
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel, EncoderDecoderModel

Ids = Int[Tensor, "batch seq"]
New = Int[Tensor, "batch new"]
Real = Bool[Tensor, "batch seq"] | None


@checked
def greedy(model: DecoderModel, ids: Ids, *, n: int, real: Real = None, end_ids: Sequence[int] | None = None) -> New:
    """At most `n` new tokens for each prompt; behind its end a row is padded.

    Prompts of different lengths are padded, left or right, and `real` says which tokens are no padding. `end_ids` are
    the tokens that end a text, the model's own unless given.
    """
    if isinstance(model, EncoderDecoderModel):
        raise InputError("this model reads a source and writes a target: use greedy_translate")
    check_prompt(model, ids, "language_model", n)
    return _likeliest(model, [Job(prompt=row, limit=n) for row in _rows(ids, real)], end_ids)


@checked
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
    check_prompt(model, source, "translate", n)
    start_id = model.config.start_id if start_id is None else start_id
    if start_id is None:
        raise InputError("this model does not say what a target begins with: give `start_id`")
    return _likeliest(model, [Job(prompt=[start_id], source=row, limit=n) for row in _rows(source, real)], end_ids)


def _rows(ids: Ids, real: Real) -> list[list[int]]:
    """Without padding."""
    return ids.tolist() if real is None else [row[its].tolist() for row, its in zip(ids, real, strict=True)]


def _likeliest(model: DecoderModel, jobs: Sequence[Job], end_ids: Sequence[int] | None) -> New:
    if not jobs:
        return torch.zeros(0, 0, dtype=torch.long, device=model.device)
    check_jobs(model, jobs, 1)
    ends = model.config.end_ids or () if end_ids is None else end_ids
    room = {"rows": len(jobs), "prompt": max(len(job.prompt) for job in jobs)}
    search = GreedySearch(
        most=max(job.limit for job in jobs), ends=ends, device=model.device,
        dtype=torch.promote_types(model.dtype, torch.float32), **room,
    )  # fmt: skip
    search.recordable = False  # samples of a run are few, and its other threads may not touch a GPU that is recorded
    engine = Engine(model, search, source=max(len(job.source) for job in jobs), **room)
    found = dict(engine.run(jobs))
    texts = [torch.tensor(found[number][0].ids, device=model.device) for number in range(len(jobs))]
    pad_id = model.config.pad_id if model.config.pad_id is not None else next(iter(ends), 0)
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=pad_id)


def check_prompt(model: DecoderModel, ids: Tensor, task: str, n: int) -> None:
    if model.config.task != task:
        raise InputError(f"a model for task={model.config.task!r} predicts no next token: use one for {task!r}")
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
