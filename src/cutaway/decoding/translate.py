"""Many texts, translated: cut into tokens, sorted by length, batched, searched, and put back in their order.

    translate_all(model, tokenizer, ["I ate an apple."], beam=4)     # ['Ich habe einen Apfel gegessen.']

A source is read as in training: the tag of the wanted language, where a model knows several; the text; the end token.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cutaway.decoding.beam import EarlyStopping, beam_translate
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer


def translate_all(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    beam: int = 4,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    max_len: int = 256,
    growth: tuple[float, float] = (2.0, 20.0),
    batch_tokens: int | None = None,
    tag: int | None = None,
    start_id: int | None = None,
    end_ids: Sequence[int] | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """The translation of each text; one without any token is its own.

    A source of n tokens gets a target of at most min(max_len, a·n + b) tokens, (a, b) = `growth`, whatever else is in
    its batch. `batch_tokens` bounds the places of a batch of sources, padding included (4096; on a GPU 16384).
    `report` is told, after each batch, how many texts of how many are done.
    """
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    if not end_ids:
        raise InputError("this model does not say what ends a text: give `end_ids`")
    sources = encode_sources(model, tokenizer, texts, tag, end_ids[0])
    longest = max_len if model.max_len is None else min(max_len, model.max_len)
    a, b = growth
    answers = [""] * len(texts)
    done = sum(not source for source in sources)
    if batch_tokens is None:
        batch_tokens = 16384 if model.device.type == "cuda" else 4096  # a GPU's steps take as long for few rows
    for rows in batches(sources, batch_tokens):
        ids, real = padded([sources[row] for row in rows], model.config.pad_id or 0)
        found = beam_translate(
            model,
            ids.to(model.device),
            n=[max(1, min(longest, math.ceil(a * len(sources[row]) + b))) for row in rows],
            beam=beam,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            real=None if real.all() else real.to(model.device),
            start_id=start_id,
            end_ids=end_ids,
        )
        for row, target in zip(rows, found, strict=True):
            # a model's vocabulary may be padded to a round number: those places stand for nothing
            written = [id for id in target if id not in end_ids and id < tokenizer.vocab_size]
            answers[row] = tokenizer.decode(written)
        done += len(rows)
        report(done, len(texts))
    return answers


def encode_sources(
    model: EncoderDecoderModel, tokenizer: Tokenizer, texts: Sequence[str], tag: int | None, end_id: int
) -> list[list[int]]:
    """Tag, text, end; nothing for a text without tokens. A text that is longer than the model can read is refused."""
    front = [] if tag is None else [tag]
    sources = [[*front, *ids, end_id] if ids else [] for ids in tokenizer.encode_batch(texts, special=False)]
    for row, source in enumerate(sources):
        if model.max_len is not None and len(source) > model.max_len:
            raise InputError(f"text {row + 1} has {len(source)} tokens; this model reads at most {model.max_len}")
    return sources


def batches(sources: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Rows of about the same length, at most `batch_tokens` places together; the longest first, so that a batch that
    does not fit into memory shows at once."""
    if batch_tokens < 1:
        raise InputError(f"batch_tokens={batch_tokens}: a batch holds at least one token")
    order = sorted((row for row in range(len(sources)) if sources[row]), key=lambda row: -len(sources[row]))
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // len(sources[order[start]]))
        yield order[start:stop]
        start = stop


def padded(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """Rows side by side, filled up on the right, and where they are real."""
    lengths = torch.tensor([len(row) for row in rows])
    real = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    ids = torch.full(real.shape, pad_id)
    ids[real] = torch.tensor([id for row in rows for id in row])
    return ids, real
