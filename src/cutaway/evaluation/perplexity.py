"""Perplexity and bits per byte: how well a language model predicts a text.

    surprisal of a token   −log p(token | what stands before it)
    perplexity             e^(mean surprisal in nats): the number of equally likely tokens with the same surprisal
    bits per byte          Σ surprisal in bits / bytes of the text: the size to which the model would compress it

Perplexity depends on how a text is split into tokens, and bits per byte do not: only they can compare models with
different tokenizers (Shannon 1951 measured people in the same unit).

A text that is longer than `context` is read in windows of `context` tokens, each `stride` further on. Each window
scores what no earlier one did:

    text       a b c d e f g h i j         context 6, stride 2
    1st window a b c d e f  →  b c d e f g
    2nd            c d e f g h  →       h i
    3rd                e f g h i  →         j

So every token is scored exactly once, and sees at least `context` − `stride` tokens before it, or all there are.
`stride` = `context` is fastest, but every window begins without a past. Windows never cross the border of a document.

The first token of a document has no past. It is scored only if `start_id` is given and stands before it; otherwise it
is read and not scored, although its bytes count: compare only models that both have a start token.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.arguments import Progress, checked, no_progress
from cutaway.decoding.single_pass import in_precision
from cutaway.errors import InputError
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel, EncoderDecoderModel
from cutaway.model.upcast import upcast

Document = Sequence[int] | np.ndarray | Tensor
Row = Int[np.ndarray, " _"]  # one document; each has its own length
LOGITS_AT_ONCE = 1 << 25  # numbers: 128 MB in fp32; full logits of a batch are never needed


@dataclass(frozen=True, eq=False)
class Surprisal:
    """Of each window: the surprisal of the tokens that it scored, in nats, their number, and the document."""

    nats: Float[np.ndarray, " window"]
    tokens: Int[np.ndarray, " window"]
    documents: Int[np.ndarray, " window"]

    @property
    def total(self) -> float:
        return math.fsum(self.nats)

    @property
    def n_tokens(self) -> int:
        return int(self.tokens.sum())

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.total / self.n_tokens, 700.0))  # e^710 is beyond every number

    def bits_per_byte(self, n_bytes: int) -> float:
        if n_bytes < 1:
            raise InputError(f"n_bytes={n_bytes} must be the number of UTF-8 bytes of the text")
        return self.total / math.log(2) / n_bytes


@dataclass(frozen=True)
class ScoredWindow:
    """Reads `ids` (of which the last is only predicted) and scores its last `scored` tokens."""

    ids: Int[np.ndarray, " seq"]
    scored: int
    document: int


def bits_per_byte(model: DecoderModel, documents: Document | Sequence[Document], n_bytes: int, **reading: Any) -> float:
    """Bits per byte of one document or several, whose texts have `n_bytes` bytes of UTF-8 in all.

    `reading` are the options of `surprisal`.
    """
    return surprisal(model, documents, **reading).bits_per_byte(n_bytes)


def perplexity(model: DecoderModel, documents: Document | Sequence[Document], **reading: Any) -> float:
    """Perplexity per token of one document or several; `reading` are the options of `surprisal`."""
    return surprisal(model, documents, **reading).perplexity


@checked
@torch.no_grad()
def surprisal(
    model: DecoderModel,
    documents: Document | Sequence[Document],
    *,
    context: int | None = None,
    stride: int | None = None,
    batch: int = 8,
    start_id: int | None = None,
    autocast: torch.dtype | None = None,
    progress: Progress = no_progress,
) -> Surprisal:
    """The surprisal of every token, summed per window of `context` tokens (the model's max_len unless given).

    `stride` is half the context unless given. `batch` windows are read at once; how many changes nothing but speed.
    Under `autocast` (torch.bfloat16) the body runs in that precision; the scores of tokens stay in the weights'.
    `progress` counts windows.
    """
    context, stride = _check(model, context, stride, batch)
    windows = list(windows_of(_rows(documents, start_id), context, stride))
    if not windows:
        raise InputError("no token to score: without a `start_id`, a single token has no context")
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i].ids))  # neighbours have the same length
    nats = torch.zeros(len(windows), dtype=torch.float64, device=model.device)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        nats[torch.tensor(chosen, device=nats.device)] = _read(model, [windows[i] for i in chosen], autocast)
        progress(start + len(chosen), len(order))
    check_scores(model, nats)
    return Surprisal(
        nats.cpu().numpy(),
        np.array([window.scored for window in windows]),
        np.array([window.document for window in windows]),
    )


def windows_of(documents: Iterable[Row], context: int, stride: int) -> Iterator[ScoredWindow]:
    """The windows of each document; a window of `context` tokens has `context` + 1 ids, the last only predicted."""
    for document, ids in enumerate(documents):
        done = 1  # the first token is never predicted
        for start in range(0, len(ids), stride):
            if done >= len(ids):
                break
            stop = min(start + context + 1, len(ids))
            yield ScoredWindow(ids[start:stop], stop - done, document)
            done = stop


def _read(
    model: DecoderModel, windows: Sequence[ScoredWindow], autocast: torch.dtype | None
) -> Float[Tensor, " window"]:
    """The surprisal of what each window scores, summed in double precision."""
    longest = max(len(window.ids) for window in windows) - 1
    ids, real = np.zeros((len(windows), longest), np.int64), np.zeros((len(windows), longest), bool)
    rows, places, wanted = [], [], []
    for i, window in enumerate(windows):
        n = len(window.ids) - 1
        ids[i, :n], real[i, :n] = window.ids[:-1], True
        rows.append(np.full(window.scored, i))
        places.append(np.arange(n - window.scored, n))
        wanted.append(window.ids[-window.scored :])
    row, place, target = (torch.from_numpy(np.concatenate(x)).to(model.device) for x in (rows, places, wanted))
    padded = None if real.all() else torch.from_numpy(real).to(model.device)  # unpadded, kernels skip the mask
    with in_precision(model.device, autocast):
        hidden = model.hidden(torch.from_numpy(ids).to(model.device), real=padded)
    states = hidden[row, place].to(model.dtype)
    nats = torch.zeros(len(windows), dtype=torch.float64, device=model.device)
    few = max(1, LOGITS_AT_ONCE // getattr(model.config, "vocab_size", 1))
    for start in range(0, len(states), few):
        part = slice(start, start + few)
        logits = upcast(model.head(states[part]))
        right = logits.gather(1, target[part, None])[:, 0]
        nats.index_add_(0, row[part], (logits.logsumexp(dim=1) - right).double())
    return nats


def _rows(documents: Document | Sequence[Document], start_id: int | None) -> Iterator[Row]:
    """Each document as one row of ids, with the start token in front where there is one."""
    one = (
        isinstance(documents, (np.ndarray, Tensor)) or not len(documents) or isinstance(documents[0], (int, np.integer))
    )
    for document in [documents] if one else documents:
        ids = np.asarray(document.cpu() if isinstance(document, Tensor) else document)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise InputError(f"a document of shape {ids.shape} and kind {ids.dtype}: expected one row of token ids")
        ids = ids.astype(np.int64)
        yield ids if start_id is None else np.concatenate([np.array([start_id]), ids])


def _check(model: DecoderModel, context: int | None, stride: int | None, batch: int) -> tuple[int, int]:
    if isinstance(model, EncoderDecoderModel) or model.config.task != "language_model":
        raise InputError(f"a {model.config.family} model for task={model.config.task!r} is not a language model")
    if model.training:
        raise InputError("the model is in training mode, where dropout is random: call model.eval() first")
    if context is None:
        context = model.max_len or 1024
    if model.max_len is not None and context > model.max_len:
        raise InputError(f"context={context} is longer than this model's max_len={model.max_len}")
    stride = max(1, context // 2) if stride is None else stride
    if not 1 <= stride <= context:
        raise InputError(f"stride={stride} is not between 1 and context={context}")
    if batch < 1:
        raise InputError(f"batch={batch} must be at least 1")
    return context, stride
