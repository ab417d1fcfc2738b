"""Texts as vectors, so that texts with similar meanings are close to each other.

    vectors = embed(model, tokenizer, ["A man plays.", "Someone makes music."])      # text × d_model, each of length 1
    vectors @ vectors.T                                                              # their cosine similarities

`pool="mean"` is the mean of the states of all tokens (Reimers & Gurevych 2019, Sentence-BERT); `"first"` is the state
of [CLS], which has seen the whole text in an encoder only.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float

from cutaway.arguments import Progress, checked, no_progress
from cutaway.decoding.single_pass import Row, check_cut, check_ready, check_room, rows_of, side_by_side
from cutaway.errors import InputError
from cutaway.model.finite import check_scores
from cutaway.model.heads import first_state, mean_state
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.tokens import Tokenizer

Pool = Literal["mean", "first"]


@checked
@torch.no_grad()
def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pool: Pool = "mean",
    cut: int | None = None,
    batch_tokens: int = 8192,
    as_trained: bool = False,
    progress: Progress = no_progress,
) -> Float[np.ndarray, "text d_model"]:
    """One vector of length 1 for each text, independent of the rest of the batch.

    A text that is longer than the model reads is refused; `cut` cuts texts after so many tokens. `as_trained` puts
    special tokens around them as `cutaway train` does, not as the tokenizer does.
    """
    _check(model, pool)
    check_cut(model, cut)
    rows = rows_of(tokenizer, texts, cut, as_trained=as_trained)
    return embed_rows(model, rows, pool=pool, batch_tokens=batch_tokens, progress=progress)


@torch.no_grad()
def embed_rows(
    model: Model,
    rows: Sequence[Row],
    *,
    pool: Pool = "mean",
    batch_tokens: int = 8192,
    progress: Progress = no_progress,
) -> Float[np.ndarray, "text d_model"]:
    """The same for tokens."""
    _check(model, pool)
    check_room(model, rows)
    found = torch.empty(
        len(rows), model.config.to_dict()["d_model"], dtype=torch.promote_types(model.dtype, torch.float32)
    )
    done = 0
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        real = more["real"]
        hidden = model.encode(ids, real) if isinstance(model, EncoderDecoderModel) else model.hidden(ids, **more)
        hidden = hidden.to(found.dtype)
        vectors = first_state(hidden, real) if pool == "first" else mean_state(hidden, real)
        check_scores(model, vectors)
        found[chosen] = F.normalize(vectors, dim=-1).cpu()
        done += len(chosen)
        progress(done, len(rows))
    return found.numpy()


def _check(model: Model, pool: str) -> None:
    check_ready(model)
    if pool not in ("mean", "first"):
        raise InputError(f"pool={pool!r} is neither 'mean' nor 'first'")
    if model.config.family == "vit":
        raise InputError("this model reads pictures: use one that reads text")
    if pool == "first" and isinstance(model, DecoderModel) and not isinstance(model, EncoderDecoderModel):
        raise InputError("the first token of a decoder has seen only itself: use pool='mean'")
