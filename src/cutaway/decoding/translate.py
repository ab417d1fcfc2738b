"""Many texts, translated: cut into tokens, sorted by length, batched, searched, and put back in their order.

    translate_all(model, tokenizer, ["I ate an apple."], beam=4)     # ['Ich habe einen Apfel gegessen.']

A source is read as in training: the tag of the wanted language, where a model knows several; the text; the end token.
"""

import math
from collections.abc import Callable, Sequence

from cutaway.decoding.beam import EarlyStopping
from cutaway.decoding.engine import Job
from cutaway.decoding.write import written
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
    rows: int | None = None,
    tag: int | None = None,
    start_id: int | None = None,
    end_ids: Sequence[int] | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """The translation of each text; one without any token is its own.

    A source of n tokens gets a target of at most min(max_len, a·n + b) tokens, (a, b) = `growth`, whatever else is in
    its batch. `rows` are worked on at a time. `report` is told how many texts of how many are done.
    """
    end_ids = model.config.end_ids or () if end_ids is None else end_ids
    if not end_ids:
        raise InputError("this model does not say what ends a text: give `end_ids`")
    start_id = model.config.start_id if start_id is None else start_id
    if start_id is None:
        raise InputError("this model does not say what a target begins with: give `start_id`")
    sources = encode_sources(model, tokenizer, texts, tag, end_ids[0])
    longest = max_len if model.max_len is None else min(max_len, model.max_len)
    a, b = growth
    order = sorted((row for row in range(len(texts)) if sources[row]), key=lambda row: -len(sources[row]))
    jobs = [
        Job(prompt=[start_id], source=sources[row], limit=max(1, min(longest, math.ceil(a * len(sources[row]) + b))))
        for row in order
    ]
    answers = [""] * len(texts)
    done = len(texts) - len(jobs)
    search = {"beam": beam, "length_penalty": length_penalty, "early_stopping": early_stopping, "end_ids": end_ids}
    for number, found in written(model, jobs, rows=rows, **search):  # type: ignore[arg-type]
        # a model's vocabulary may be padded to a round number: those places stand for nothing
        ids = [id for id in found[0].ids if id not in end_ids and id < tokenizer.vocab_size]
        answers[order[number]] = tokenizer.decode(ids)
        done += 1
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
