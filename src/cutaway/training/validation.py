"""Measuring a model while it trains: the loss on examples that it does not learn from, scores, and some samples."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from cutaway.data.batches import Batch, Source
from cutaway.data.order import Indices, generator
from cutaway.decoding import greedy, greedy_translate
from cutaway.evaluation.scores import scores_for
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.tap import watch
from cutaway.objectives import IGNORED, Labels, Objective, Pictures
from cutaway.objectives.objective import Arrays, as_tensors
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.shared import TrainingData

VALIDATE = 102  # what random numbers are for: hidden words are the same in every evaluation
LONGEST, NEAR = 80, 24  # of a sample: characters, and tokens around a blank


@contextmanager
def resting(model: Model) -> Iterator[None]:
    """Without dropout, for as long as the block lasts; then as before, whatever happens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def validate(
    model: Model, objective: Objective, source: Source, *, batches: int = 0, autocast: torch.dtype | None = None
) -> dict[str, float]:
    """The mean loss of each term over all examples, or some batches of them, and the scores that fit the objective."""
    sums: dict[str, float] = dict.fromkeys(objective.targets, 0.0)
    counts: dict[str, int] = dict.fromkeys(objective.targets, 0)
    said, wanted = [], []
    scored = "label" in objective.targets
    watched: AbstractContextManager[Any] = watch(model, "head.logits") if scored else nullcontext()
    with resting(model), watched as seen:  # the answers are seen on their way to the loss: nothing is read twice
        for step in _spread(min(batches or source.steps, source.steps), source.steps):
            arrays = objective.prepare(source(step), generator(VALIDATE, step))
            batch = as_tensors(arrays, model.device)
            with torch.autocast(model.device.type, autocast, enabled=autocast is not None):
                losses = objective.losses(model, batch)
            if scored:
                said.append(seen["head.logits"].float().cpu().numpy())
                wanted.append(arrays["targets"])
            for term, n in objective.counts(arrays).items():
                sums[term] += losses[term].double().item()
                counts[term] += n
    means = {term: sums[term] / max(1, counts[term]) for term in sums}
    result = {"loss": sum(objective.weight(term) * mean for term, mean in means.items())}
    if len(means) > 1:
        result |= {f"loss_{term}": mean for term, mean in means.items()}
    if said:
        answers = np.concatenate([rows.reshape(-1, rows.shape[-1]) for rows in said])
        result |= scores(answers, np.concatenate([targets.reshape(-1) for targets in wanted]))
    return result


def _spread(n: int, steps: int) -> list[int]:
    """n of so many steps, from all over: the first ones of a table are its shortest rows."""
    return [i * steps // n for i in range(n)]


def scores(said: Any, wanted: Any) -> dict[str, float]:
    """GLUE's scores for the kind of label."""
    numbers = wanted.dtype.kind == "f"
    there = ~np.isnan(wanted) if numbers else wanted != IGNORED
    answers = said[there, 0] if numbers else said[there].argmax(axis=-1)
    known = scores_for(None if numbers else said.shape[-1])
    return {name: score(answers, wanted[there]) for name, score in known.items()}


def bits(result: dict[str, float], dataset: TrainingData) -> dict[str, float]:
    """Perplexity and bits per byte of a language model, from its mean loss in nats per token."""
    if "next_token" not in dataset.objective.targets:
        return {}
    found = {"perplexity": math.exp(min(result["loss"], 100.0))}
    if dataset.bytes_per_token:
        found["bits_per_byte"] = result["loss"] / math.log(2) / dataset.bytes_per_token
    return found


# --- samples --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    """What the model makes of a few examples: how a text goes on, a translation, filled blanks, labels."""
    terms, tokenizer = dataset.objective.targets, dataset.tokenizer
    if n < 1:
        return []
    with resting(model):
        if "label" in terms:
            return list(_labelled(model, dataset, n))
        assert tokenizer is not None
        if "masked" in terms:
            return list(_filled(model, dataset, tokenizer, n))
        if isinstance(model, EncoderDecoderModel) and "translation" in terms:
            return _translations(model, dataset, tokenizer, n)
        if isinstance(model, DecoderModel) and "next_token" in terms:
            return _continuation(model, tokenizer, prompt)
        return []


def _some(dataset: TrainingData, n: int) -> Iterator[tuple[Batch, Arrays]]:
    """n validation examples from all over, the same every time: as they come, and as the model reads them."""
    source = dataset.valid
    if source is None:
        return
    for step, wanted in Counter(_spread(n, source.steps)).items():
        raw = source(step)
        there = np.flatnonzero(raw["example"] >= 0) if "example" in raw else np.arange(len(next(iter(raw.values()))))
        rows = there[:: -(-len(there) // wanted)]
        arrays = dataset.objective.prepare(raw, generator(VALIDATE, step))
        yield _only(raw, rows), _only(arrays, rows)


def _only(batch: Batch, rows: Indices) -> Batch:
    return {name: values[rows] for name, values in batch.items()}


def _labelled(model: Model, dataset: TrainingData, n: int) -> Iterator[str]:
    """`the text → what the model says (true: what it should say)`."""
    names, objective = dataset.numbers.get("labels"), dataset.objective
    assert isinstance(objective, Labels | Pictures)
    for raw, arrays in _some(dataset, n):
        answers = objective.answers(model, as_tensors(arrays, model.device)).float().cpu().numpy()
        said = answers[..., 0] if names is None else answers.argmax(axis=-1)
        for row, sides in enumerate(zip(said, arrays["targets"], strict=True)):
            there = np.atleast_1d(sides[1]) != IGNORED  # a tag for each word, or one label
            answer, truth = (
                " ".join(f"{x:.3g}" if names is None else names[x] for x in np.atleast_1d(side)[there])
                for side in sides
            )
            yield f"{_shown(raw, row, dataset.tokenizer)} → {answer} (true: {truth})"


def _shown(raw: Batch, row: int, tokenizer: Tokenizer | None) -> str:
    """A text, or how it begins; two of them; the number of a picture."""
    if tokenizer is None:
        return f"picture {raw['example'][row]}"
    names = ["text"] if "text" in raw else ["first", "second"]
    texts = [tokenizer.decode(raw[name][row, : raw[f"{name}_length"][row]].tolist()) for name in names]
    return " / ".join(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in texts)


def _filled(model: Model, dataset: TrainingData, tokenizer: Tokenizer, n: int) -> Iterator[str]:
    """`words with a [MASK] among them → what fills it (true: what was there)`."""
    for _, arrays in _some(dataset, n):
        for row, targets in enumerate(arrays["targets"]):
            truth, places = (values[targets != IGNORED] for values in (targets, arrays["at"][row]))
            if not len(places):
                continue
            ids, real = arrays["ids"][row].copy(), arrays["real"][row]
            ids[places] = tokenizer.mask_id  # also where training leaves a word or puts another
            more: Arrays = {
                name: arrays[name][row][None] for name in ("real", "segments", "documents") if name in arrays
            }
            hidden = model.hidden(torch.from_numpy(ids)[None].to(model.device), **as_tensors(more, model.device))
            said = model.head(hidden[:, places])[0, :, : tokenizer.vocab_size].argmax(dim=-1).cpu().numpy()
            start = max(0, int(places[0]) - NEAR // 3)
            text = tokenizer.decode(ids[start : start + NEAR][real[start : start + NEAR]].tolist(), skip_special=False)
            answer, true = (
                ", ".join(
                    tokenizer.decode([id], skip_special=False).strip() for id in side[places < start + NEAR].tolist()
                )
                for side in (said, truth)
            )
            yield f"{text} → {answer} (true: {true})"


def _translations(model: EncoderDecoderModel, dataset: TrainingData, tokenizer: Tokenizer, n: int) -> list[str]:
    if not dataset.sample_source:
        return []
    end_id = tokenizer.eos_id
    found: list[str] = []
    for text, tag in dataset.sample_source:
        ids = ([tag] if tag is not None else []) + tokenizer.encode(text, special=False) + [end_id]
        if len(found) == n or (model.max_len is not None and len(ids) > model.max_len):
            continue
        source = torch.tensor([ids], device=model.device)
        length = min(2 * len(ids) + 10, model.max_len or 256)
        written = greedy_translate(model, source, n=length)[0].tolist()
        kept = [id for id in written if id not in (end_id, tokenizer.pad_id) and id < tokenizer.vocab_size]
        found.append(f"{text} → {tokenizer.decode(kept)}")
    return found


def _continuation(model: DecoderModel, tokenizer: Tokenizer, prompt: str) -> list[str]:
    longest = model.max_len or 1 << 20
    ids = (tokenizer.encode(prompt, special=False) or [tokenizer.bos_id or 0])[-longest:]
    n = min(60, longest - len(ids) + 1)
    written = greedy(model, torch.tensor([ids], device=model.device), n=n)[0].tolist()
    return [tokenizer.decode([*ids, *(id for id in written if id < tokenizer.vocab_size)])]
