"""Measuring a model while it trains: the loss on examples that it does not learn from, scores, and some samples."""

import math
from typing import Any

import numpy as np
import torch

from cutaway.data.batches import Source
from cutaway.data.order import generator
from cutaway.decoding import greedy, greedy_translate
from cutaway.evaluation.scores import accuracy, f1, macro_f1, matthews, pearson, spearman
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.objectives import IGNORED, Labels, Objective, Pictures
from cutaway.objectives.objective import as_tensors
from cutaway.tokens import Tokenizer
from cutaway.training.material.common import Material

VALIDATE = 102  # what random numbers are for: hidden words are the same in every evaluation


@torch.no_grad()
def validate(
    model: Model, objective: Objective, source: Source, *, batches: int = 0, autocast: torch.dtype | None = None
) -> dict[str, float]:
    """The mean loss of each term over all examples (or the first batches), and the scores that fit the objective."""
    was_training = model.training
    model.eval()
    sums: dict[str, float] = dict.fromkeys(objective.targets, 0.0)
    counts: dict[str, int] = dict.fromkeys(objective.targets, 0)
    said, wanted = [], []
    for step in range(min(batches, source.steps) if batches else source.steps):
        arrays = objective.prepare(source(step), generator(VALIDATE, step))
        batch = as_tensors(arrays, model.device)
        with torch.autocast(model.device.type, autocast, enabled=autocast is not None):
            losses = objective.losses(model, batch)
            if isinstance(objective, Labels | Pictures):
                said.append(objective.answers(model, batch).float().cpu().numpy())
                wanted.append(arrays["targets"])
        for term, n in objective.counts(arrays).items():
            sums[term] += losses[term].double().item()
            counts[term] += n
    model.train(was_training)
    means = {term: sums[term] / max(1, counts[term]) for term in sums}
    result = {"loss": sum(objective.weight(term) * mean for term, mean in means.items())}
    if len(means) > 1:
        result |= {f"loss_{term}": mean for term, mean in means.items()}
    if said:
        answers = np.concatenate([rows.reshape(-1, rows.shape[-1]) for rows in said])
        result |= scores(answers, np.concatenate([targets.reshape(-1) for targets in wanted]))
    return result


def scores(said: Any, wanted: Any) -> dict[str, float]:
    """GLUE's scores for the kind of label."""
    if wanted.dtype.kind == "f":
        there = ~np.isnan(wanted)
        numbers, wanted = said[there, 0], wanted[there]
        return {"pearson": pearson(numbers, wanted), "spearman": spearman(numbers, wanted)}
    there = wanted != IGNORED
    classes, wanted = said[there].argmax(axis=-1), wanted[there]
    if said.shape[-1] > 2:
        return {"accuracy": accuracy(classes, wanted), "macro_f1": macro_f1(classes, wanted)}
    return {
        "accuracy": accuracy(classes, wanted),
        "f1": f1(classes, wanted),
        "matthews": matthews(classes, wanted),
    }


def bits(result: dict[str, float], material: Material) -> dict[str, float]:
    """Perplexity and bits per byte of a language model, from its mean loss in nats per token."""
    if "next_token" not in material.objective.targets:
        return {}
    found = {"perplexity": math.exp(min(result["loss"], 100.0))}
    if material.bytes_per_token:
        found["bits_per_byte"] = result["loss"] / math.log(2) / material.bytes_per_token
    return found


@torch.no_grad()
def samples(model: Model, material: Material, n: int, prompt: str) -> list[str]:
    """What the model writes: how a text goes on, or what a sentence is in the other language."""
    tokenizer = material.tokenizer
    if n < 1 or tokenizer is None:
        return []
    was_training = model.training
    model.eval()
    try:
        if isinstance(model, EncoderDecoderModel) and "translation" in material.objective.targets:
            return _translations(model, material, tokenizer, n)
        if isinstance(model, DecoderModel) and "next_token" in material.objective.targets:
            return _continuation(model, tokenizer, prompt)
        return []
    finally:
        model.train(was_training)


def _translations(model: EncoderDecoderModel, material: Material, tokenizer: Tokenizer, n: int) -> list[str]:
    if not material.sample_source:
        return []
    end_id = tokenizer.eos_id
    found: list[str] = []
    for text, tag in material.sample_source:
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
