"""Word vectors by skip-gram with negative sampling: a word should tell which words stand around it. (Mikolov 2013.)

Each word w has a vector v(w) for when it stands in the middle, and u(w) for when it stands around. A pair (w, c) that
is seen should score high, pairs of w with k words drawn at random should score low:

    loss = − ln σ(v(w)·u(c)) − k · mean over drawn words n of ln σ(−v(w)·u(n))

Written with matrices it is a masked look-up: all words of a stretch against all others, V·Uᵀ, and a mask that keeps
those within the window. `loss` is that; `slopes` is its gradient by hand, and `move` goes down a step.

What we do in another way than word2vec, to take many pairs at once: the drawn words are shared by a batch, each with
its part of the weight, so the mean is the same; word2vec passes over a drawn word that is the neighbour itself, and
here it pulls and pushes. And a row that stands in many pairs of a batch does not take as many
steps from one place, which would throw it far out, but one that shrinks with the loss's curvature there:

    row −= rate · Σ slope / (1 + rate · Σ curvature)         curvature: σ(1−σ)·|u|², the trace of the second derivatives
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor
from torch.nn.functional import logsigmoid

from cutaway.arguments import Progress, no_progress
from cutaway.before.ngrams.counts import Ids
from cutaway.before.options import SkipGramOptions
from cutaway.before.vectors.skip_gram_text import SkipGramText, Stretches
from cutaway.errors import InputError
from cutaway.folders import VECTORS, replacing_folder

Middle = Float[Tensor, "stretch middle d"]
Around = Float[Tensor, "stretch place d"]
Drawn = Float[Tensor, "drawn d"]
Near = Bool[Tensor, "stretch middle place"]


class Slopes(NamedTuple):
    """The gradient and the curvature of the loss, for each row of a batch."""

    middle: Middle
    around: Around
    drawn: Drawn
    curved_middle: Float[Tensor, "stretch middle"]
    curved_around: Float[Tensor, "stretch place"]
    curved_drawn: Float[Tensor, " drawn"]


@dataclass(frozen=True, eq=False)
class SkipGram:
    """Word vectors: `vectors[i]` is that of the token `tokens[i]`; the most frequent come first."""

    tokens: Int64[np.ndarray, " word"]
    vectors: Float[np.ndarray, "word d"]

    def save(self, folder: Path, names: Sequence[str]) -> None:
        """Writes vectors.npy and words.txt, which `checkpoints.word_vectors` reads; `names[i]` is token i.

        Earlier vectors in the folder are replaced, both files at once.
        """
        words = [names[i] for i in self.tokens.tolist()]
        odd = [word for word in words if "\n" in word]
        if odd:
            raise InputError(f"the word {odd[0]!r} has a line end, but words are written one per line")
        with replacing_folder(folder, VECTORS) as fresh:
            np.save(fresh / "vectors.npy", self.vectors, allow_pickle=False)
            (fresh / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")


def train_skip_gram(
    ids: Ids,
    vocab_size: int,
    options: SkipGramOptions | None = None,
    *,
    end: int | None = None,
    progress: Progress = no_progress,
) -> SkipGram:
    """Trains vectors of the tokens of a text. `ids` may be mapped; each `end` ends a text."""
    options = options or SkipGramOptions()
    random = np.random.default_rng(options.seed)
    text = SkipGramText(ids, vocab_size, end, options.window, options.min_count, options.sample)
    size = len(text.tokens)
    middle = torch.from_numpy(random.uniform(-0.5, 0.5, (size, options.d)).astype(np.float32) / options.d)
    around, curved = torch.zeros(size, options.d), torch.zeros(size)
    total = options.epochs * len(ids)
    for epoch in range(options.epochs):
        for stretches in text.stretches(random):
            done = epoch * len(ids) + stretches.done
            rate = options.rate * max(1 - done / total, 1e-3)
            skip_gram_step(middle, around, curved, stretches, options.negatives, rate)
            progress(done, total)
    progress(total, total)
    return SkipGram(text.tokens, middle.numpy())


def skip_gram_step(
    middle: Float[Tensor, "word d"],
    around: Float[Tensor, "word d"],
    curved: Float[Tensor, " word"],
    batch: Stretches,
    negatives: int,
    rate: float,
) -> None:
    """One training step, in place. `curved` is a buffer for sums, all 0 before and after."""
    rows, places = batch.middle.flatten(), batch.around.flatten()
    v = middle[rows].view(*batch.middle.shape, -1)
    u = around[places].view(*batch.around.shape, -1)
    found = slopes(v, u, around[batch.drawn], batch.near, negatives)
    move(middle, rows, found.middle.flatten(0, 1), found.curved_middle.flatten(), rate, curved)
    others = torch.cat([places, batch.drawn])
    slope = torch.cat([found.around.flatten(0, 1), found.drawn])
    move(around, others, slope, torch.cat([found.curved_around.flatten(), found.curved_drawn]), rate, curved)


def loss(v: Middle, u: Around, drawn: Drawn, near: Near, negatives: int) -> Float[Tensor, ""]:
    """The loss of all pairs in `near`, each with `negatives` negative samples."""
    kept = near.to(v.dtype)
    found = logsigmoid(v @ u.mT) * kept
    missed = logsigmoid(-(v @ drawn.T)).mean(-1) * kept.sum(-1) * negatives
    return -(found.sum() + missed.sum())


def slopes(v: Middle, u: Around, drawn: Drawn, near: Near, negatives: int) -> Slopes:
    """The gradient of `loss`, and its curvature for each row."""
    kept = near.to(v.dtype)
    share = kept.sum(-1, keepdim=True) * (negatives / len(drawn))
    p, q = torch.sigmoid(v @ u.mT), torch.sigmoid(v @ drawn.T)
    toward, away = (p - 1) * kept, q * share
    bent, bent_away = -p * toward, (1 - q) * away
    v_flat, away_flat = v.flatten(0, 1), away.flatten(0, 1)
    v_length, u_length, drawn_length = (x.square().sum(-1) for x in (v, u, drawn))
    return Slopes(
        toward @ u + away @ drawn,
        toward.mT @ v,
        away_flat.T @ v_flat,
        (bent @ u_length[..., None]).squeeze(-1) + bent_away @ drawn_length,
        (bent.mT @ v_length[..., None]).squeeze(-1),
        bent_away.flatten(0, 1).T @ v_length.flatten(),
    )


def move(
    matrix: Float[Tensor, "word d"],
    rows: Int[Tensor, " place"],
    slope: Float[Tensor, "place d"],
    curvature: Float[Tensor, " place"],
    rate: float,
    curved: Float[Tensor, " word"],
) -> None:
    """Moves each row against the sum of its gradients, less where the loss is curved."""
    curved.index_add_(0, rows, curvature)
    size = rate / (1 + rate * curved[rows])
    curved[rows] = 0
    matrix.index_add_(0, rows, slope * -size[:, None])
