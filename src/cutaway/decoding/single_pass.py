"""What a model answers in a single forward pass: for texts, pairs of texts, the words of a text, pictures.

A text is read as in training, with the special tokens around it ([CLS] … [SEP]). One that is too long is refused, or
cut if the caller asks for that, of a pair the longer one first; an evaluation says how many were cut.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from cutaway.arguments import Progress, no_progress
from cutaway.data.batches import longest_first
from cutaway.decoding.engine.engine import padded_ids
from cutaway.errors import InputError
from cutaway.model.device import threads_for
from cutaway.model.finite import check_scores
from cutaway.model.model import Model
from cutaway.tokens import Encoded, Tokenizer

Text = str | tuple[str, str]
TEXT = -1  # in a pattern of special tokens, the place of a text


@dataclass(frozen=True)
class Row:
    """A text as a model reads it."""

    ids: list[int]
    segments: list[int]
    cut: bool = False


def rows_of(tokenizer: Tokenizer, texts: Sequence[Text], max_len: int | None, *, as_trained: bool = False) -> list[Row]:
    """Texts, or pairs of them, as rows of at most `max_len` tokens, special ones included."""
    rows = []
    for number, text in enumerate(texts):
        parts = [text] if isinstance(text, str) else list(text)
        encoded = [tokenizer.encode_full(part, special=False) for part in parts]
        row, _, _ = surrounded(tokenizer, encoded, max_len, as_trained)
        if not row.ids:
            raise InputError(f"text {number + 1} of {len(texts)} has no token")
        rows.append(row)
    return rows


def check_cut(model: Model, cut: int | None) -> None:
    max_len = getattr(model, "max_len", None)
    if cut is not None and not 1 <= cut <= (max_len or cut):
        raise InputError(f"cut={cut} is not between 1 and max_len={max_len}")


def check_room(model: Model, rows: Sequence[Row], fix: str = "cut={max_len} drops the rest") -> None:
    """Refuses a text that is longer than the model reads: whether to cut it is up to the caller."""
    max_len = getattr(model, "max_len", None)
    for number, row in enumerate(rows):
        if max_len is not None and len(row.ids) > max_len:
            raise InputError(
                f"text {number + 1} has {len(row.ids)} tokens; this model reads at most {max_len}: "
                f"{fix.format(max_len=max_len)}"
            )


def surrounded(
    tokenizer: Tokenizer, parts: Sequence[Encoded], max_len: int | None, as_trained: bool
) -> tuple[Row, int, list[int]]:
    """One text or two with special tokens around them, cut to `max_len`; also the number of special tokens in front,
    and how many tokens of each text were kept.

    By the tokenizer's own template (published models), or `as_trained` by us: [CLS] first [SEP] second [SEP] where
    there are such tokens, else first <eos> second <eos>.
    """
    if as_trained:
        front = [] if tokenizer.cls_id is None else [tokenizer.cls_id]
        back = [id for id in [tokenizer.sep_id if front else tokenizer.eos_id] if id is not None]
        pattern = [(id, 0) for id in front]
        for segment in range(len(parts)):
            pattern += [(TEXT, segment), *((id, segment) for id in back)]
    else:
        pattern = template(tokenizer, len(parts))
    keep = lengths = [len(part.ids) for part in parts]
    if max_len is not None:
        room = max(0, max_len - (len(pattern) - len(parts)))
        keep = longest_first(np.array([lengths]), room)[0].tolist()
    ids: list[int] = []
    segments: list[int] = []
    of_parts = iter(part.ids[:n] for part, n in zip(parts, keep, strict=True))
    for id, segment in pattern:
        new = next(of_parts) if id == TEXT else [id]
        ids += new
        segments += [segment] * len(new)
    n_front = next(i for i, (id, _) in enumerate(pattern) if id == TEXT)
    return Row(ids, segments, keep != lengths), n_front, keep


def template(tokenizer: Tokenizer, n_parts: int) -> list[tuple[int, int]]:
    """A tokenizer's template for one text or two: (id, segment) of each special token, TEXT in the place of a text."""
    example = tokenizer.backend.encode("a", "a" if n_parts == 2 else None)
    pattern: list[tuple[int, int]] = []
    before: int | None = None
    for id, part, segment in zip(example.ids, example.sequence_ids, example.type_ids, strict=True):
        if part is None:
            pattern.append((id, segment))
        elif part != before:
            pattern.append((TEXT, segment))
        before = part
    return pattern


@torch.no_grad()
def answers_to(
    model: Model,
    rows: Sequence[Row],
    *,
    batch_tokens: int = 8192,
    precision: torch.dtype | None = None,
    progress: Progress = no_progress,
) -> list[Float[np.ndarray, "*place answers"]]:
    """The model's scores for each row, in double precision: one vector, or with a tagging head one for each token."""
    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    done = 0
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        with in_precision(model.device, precision), threads_for(ids.numel()):
            scores = model(ids, **more)
        check_scores(model, scores if more["real"] is None or scores.ndim < 3 else scores[more["real"]])
        for i, of_row in zip(chosen, scores.double().cpu().numpy(), strict=True):
            found[i] = of_row[: len(rows[i].ids)] if scores.ndim == 3 else of_row
        done += len(chosen)
        progress(done, len(rows))
    return found


def side_by_side(
    model: Model, rows: Sequence[Row], batch_tokens: int
) -> Iterator[tuple[list[int], Int[Tensor, "batch seq"], dict[str, Tensor | None]]]:
    """Batches of rows: their numbers, their padded ids, and the mask and segments for the model."""
    segmented = getattr(model.config, "n_segments", 1) > 1
    for chosen in row_batches([row.ids for row in rows], batch_tokens):
        ids, real = padded_ids([rows[i].ids for i in chosen], model.device)
        more = {"real": real}
        if segmented:
            more["segments"], _ = padded_ids([rows[i].segments for i in chosen], model.device)
        yield chosen, ids, more


def check_ready(model: Model) -> None:
    if model.training:
        raise InputError("this model is in training and drops out at random: call model.eval() first")


def in_precision(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Computes in this precision under autocast; None computes in that of the weights."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def row_batches(rows: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Batches of rows of similar length, by number, of at most `batch_tokens` tokens; the longest first, so that one
    that does not fit into memory fails at once."""
    order = sorted((row for row in range(len(rows)) if rows[row]), key=lambda row: -len(rows[row]))
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // len(rows[order[start]]))
        yield order[start:stop]
        start = stop


@torch.no_grad()
def answers_to_images(
    model: Model,
    images: Shaped[np.ndarray, "n channel height width"],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    batch: int = 256,
    precision: torch.dtype | None = None,
    progress: Progress = no_progress,
) -> Float[np.ndarray, "n answers"]:
    """The model's scores for each picture; bytes become numbers as (x / 255 − mean) / std, others stay as they are."""
    if batch < 1:
        raise InputError(f"batch={batch} must be at least 1")
    found = []
    for start in range(0, len(images), batch):
        some = pixels_of(model, images[start : start + batch], mean, std)
        with in_precision(model.device, precision):
            found.append(model(some).double().cpu().numpy())
        check_scores(model, found[-1])
        progress(start + len(some), len(images))
    return np.concatenate(found)


def pixels_of(
    model: Model, images: Shaped[np.ndarray, "n channel height width"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "n channel height width"]:
    """Pictures as the model reads them."""
    some = torch.from_numpy(np.array(images)).to(model.device)  # a copy, since memory-mapped arrays are read-only
    if some.dtype == torch.uint8:
        some = (some / 255 - _channels(mean, some)) / _channels(std, some)
    return some.to(model.dtype)


def _channels(values: Sequence[float], images: Tensor) -> Float[Tensor, "channel 1 1"]:
    if len(values) not in (1, images.shape[1]):
        raise InputError(f"{len(values)} numbers for pictures of {images.shape[1]} channels")
    return torch.tensor(list(values), device=images.device).expand(images.shape[1])[:, None, None]


def first_tokens(
    tokenizer: Tokenizer, words: Sequence[str], max_len: int | None, *, as_trained: bool = False
) -> tuple[Row, list[int]]:
    """Words joined by spaces as one row, and the place of each word's first token; words that do not fit are cut.

    A word's tag is predicted at its first token (BERT, section 5.3).
    """
    encoded = tokenizer.encode_full(" ".join(words), special=False)
    begins = list(accumulate((len(word) + 1 for word in words), initial=0))
    places: dict[int, int] = {}
    for at, (start, stop) in enumerate(encoded.offsets):
        if start < stop:  # by its last character: the first may be the space before the word
            places.setdefault(bisect_right(begins, stop - 1) - 1, at)
    missing = [word for number, word in enumerate(words) if number not in places]
    if missing:
        raise InputError(f"the tokenizer has no token for the word {missing[0]!r}")
    row, n_front, (n_kept,) = surrounded(tokenizer, [encoded], max_len, as_trained)
    return row, [n_front + places[number] for number in range(len(words)) if places[number] < n_kept]
