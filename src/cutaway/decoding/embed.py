"""Texts as vectors: what a model makes of a text, as one point, so that texts of like meaning lie near each other.

    vectors = embed(model, tokenizer, ["A man plays.", "Someone makes music."])      # text × d_model, each of length 1
    vectors @ vectors.T                                                              # how alike they are

`pool="mean"` is the mean of all its tokens' states (Reimers & Gurevych 2019, Sentence-BERT); `"first"` the state of
[CLS], which only an encoder's has seen the whole.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float

from cutaway.arguments import Progress, checked, no_progress
from cutaway.decoding.single_pass import check_cut, check_ready, check_room, rows_of, side_by_side
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
    """One vector of length 1 for each text, whatever else is in the batch.

    A text that is longer than the model reads is refused, unless `cut` says after how many tokens texts end.
    """
    _check(model, pool, cut)
    rows = rows_of(tokenizer, texts, cut, as_trained=as_trained)
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


def _check(model: Model, pool: str, cut: int | None) -> None:
    check_ready(model)
    if pool not in ("mean", "first"):
        raise InputError(f"pool={pool!r} is neither 'mean' nor 'first'")
    if model.config.family == "vit":
        raise InputError("this model reads pictures: texts are for a model with a vocabulary")
    if pool == "first" and isinstance(model, DecoderModel) and not isinstance(model, EncoderDecoderModel):
        raise InputError("a decoder's first token has seen nothing but itself: use pool='mean'")
    check_cut(model, cut)
