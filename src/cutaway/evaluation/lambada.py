"""LAMBADA: the last word of a passage, which people can guess from all of it but not from its last sentence alone.

    report = evaluate(model, tokenizer, [LastWord("… I don't care about", "signs"), …])       Paperno et al. 2016

    accuracy     the share of last words of which every token is the likeliest where it stands
    perplexity   e^(mean over passages of −log p(last word)), log p summed over the word's tokens: per word, so that
                 tokenizers compare

Passage and word are split into tokens as one text; the tokens that reach beyond the passage are the word's. The model's
start token stands before it where `cutaway generate` would put it. A passage that is longer than the model reads loses
its beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from cutaway.arguments import Progress, no_progress, with_options
from cutaway.data.table_files import Rows, read_table, text_of
from cutaway.decoding.single_pass import Row, side_by_side
from cutaway.errors import InputError
from cutaway.evaluation import bootstrap
from cutaway.evaluation.options import EvaluationOptions
from cutaway.evaluation.report import ItemReport
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.upcast import upcast
from cutaway.tokens import Tokenizer

BATCH_TOKENS = 4096
COLUMNS = ["context", "continuation"]
CutUp = tuple[list[int], int, bool]  # see `_tokens`


@dataclass(frozen=True)
class LastWord:
    """A passage without its last word, and that word."""

    context: str
    word: str


@with_options
@torch.no_grad()
def last_words(
    model: Model,
    tokenizer: Tokenizer,
    passages: Sequence[LastWord],
    *,
    progress: Progress = no_progress,
    options: EvaluationOptions,
) -> ItemReport:
    """How often the last word is predicted, and its perplexity."""
    _check(model, passages)
    assert isinstance(model, DecoderModel)
    start_id = model.config.start_id if options.start else None
    if start_id is not None and not tokenizer.begins_with(start_id, model.config.end_ids or ()):
        start_id = None
    cut_up = [_tokens(tokenizer, passage, start_id, model.max_len) for passage in passages]
    nats, said = _predicted(model, cut_up, options.batch_tokens or BATCH_TOKENS, progress)
    right = np.array([said[i] == ids[-n:] for i, (ids, n, _) in enumerate(cut_up)], dtype=np.float64)
    mean_nats = bootstrap.mean_of(nats)
    statistics = {
        "accuracy": bootstrap.mean_of(right),
        "perplexity": lambda draws: np.exp(np.minimum(mean_nats(draws), 700.0)),
    }
    n, n_cut = len(passages), sum(cut for *_, cut in cut_up)
    cut_off = f"{n_cut:,} of {n:,} passages are longer than this model reads, and lost their beginning"
    return ItemReport(
        "last_words",
        n,
        {"accuracy": float(right.mean()), "perplexity": float(np.exp(min(nats.mean(), 700.0)))},
        bootstrap.intervals(statistics, n, options),
        settings={
            "behind": None if start_id is None else tokenizer.token(start_id),
            "tokens_per_word": round(sum(length for _, length, _ in cut_up) / n, 3),
        },
        notes=(cut_off,) if n_cut else (),
        items=tuple(
            {
                "word": passage.word,
                "log_p": -float(nats[i]),
                "right": bool(right[i]),
                "likeliest": tokenizer.decode(said[i]).strip(),
            }
            for i, passage in enumerate(passages)
        ),
    )


def read_last_words(paths: Sequence[Path], limit: int | None = None) -> list[LastWord] | None:
    """The first `limit` rows of a table with the columns `context` and `continuation`; None where there is none."""
    found: list[LastWord] = []
    for path in paths:
        try:
            table: Rows = read_table(path, COLUMNS)
            first = next(iter(table), None)
        except InputError:
            first = None
        if first is None:
            return None
        for row in table:
            if len(found) == limit:
                break
            context, word = (text_of(row[name]) for name in COLUMNS)
            found.append(LastWord(context.rstrip(), word.strip()))
    return found or None


def _tokens(tokenizer: Tokenizer, passage: LastWord, start_id: int | None, max_len: int | None) -> CutUp:
    """The tokens of a passage, how many of them are the last word's, and whether its beginning was cut off."""
    encoded = tokenizer.encoding(f"{passage.context} {passage.word}", special=False)
    n = sum(stop > len(passage.context) for _, stop in encoded.offsets)
    front = [] if start_id is None else [start_id]
    room = None if max_len is None else max_len + 1 - len(front)
    ids = encoded.ids if room is None else encoded.ids[-room:]
    if not passage.word.strip() or not n or len(front) + len(ids) <= n:
        raise InputError(f"{passage.word!r} behind {passage.context[-20:]!r}: a word is needed, with text before it")
    return front + ids, n, len(ids) < len(encoded.ids)


def _predicted(
    model: DecoderModel, cut_up: Sequence[CutUp], batch_tokens: int, progress: Progress
) -> tuple[Float[np.ndarray, " passage"], list[list[int]]]:
    """Of each passage: −log p of the tokens of its last word, and the tokens that are likeliest in their places."""
    rows = [Row(ids[:-1], [], cut) for ids, _, cut in cut_up]  # what comes last is only predicted
    nats, said = np.zeros(len(rows)), [list[int]()] * len(rows)
    done = 0
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        asked = [
            (at, place - 1, tokens[place])
            for at, (tokens, n, _) in enumerate(cut_up[i] for i in chosen)
            for place in range(len(tokens) - n, len(tokens))
        ]
        at, place, target = torch.tensor(asked, device=model.device).unbind(1)
        logits = upcast(model.head(model.hidden(ids, **more)[at, place]))
        check_scores(model, logits)
        log_p = (logits.gather(1, target[:, None])[:, 0] - logits.logsumexp(dim=-1)).double().tolist()
        likeliest = logits.argmax(dim=-1).tolist()
        first = 0
        for i in chosen:
            part = slice(first, first + cut_up[i][1])
            nats[i], said[i], first = -sum(log_p[part]), likeliest[part], part.stop
        done += len(chosen)
        progress(done, len(rows))
    return nats, said


def _check(model: Model, passages: Sequence[LastWord]) -> None:
    if not passages:
        raise InputError("no passages, no score")
    if isinstance(model, EncoderDecoderModel) or model.config.task != "language_model":
        raise InputError(
            f"a {model.config.family} model for task={model.config.task!r} does not say which word comes next: one "
            "with task='language_model' does"
        )
