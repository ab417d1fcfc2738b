"""Translation, in one direction or several."""

import torch

from cutaway.decoding.search.greedy import greedy_translate
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.objectives.translation import Translation
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks.special_tokens import required_id


def objective(recipe: Recipe, tokenizer: Tokenizer) -> Translation:
    o = recipe.objective
    return Translation(
        start_id=required_id("begins a sentence", tokenizer.bos_id),
        end_id=required_id("ends a sentence", tokenizer.eos_id),
        smoothing=o.smoothing, tagged=bool(recipe.data.directions), agree=o.agree,
    )  # fmt: skip


def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    """`the source → its translation`."""
    if not isinstance(model, EncoderDecoderModel):
        return []
    tokenizer = dataset.text_tokenizer
    found: list[str] = []
    end_id = tokenizer.eos_id
    for text, tag in dataset.sample_sources:
        ids = ([tag] if tag is not None else []) + tokenizer.encode(text, special=False) + [end_id]
        if len(found) == n or (model.max_len is not None and len(ids) > model.max_len):
            continue
        source = torch.tensor([ids], device=model.device)
        written = greedy_translate(model, source, n=min(2 * len(ids) + 10, model.max_len or 256))[0].tolist()
        kept = [id for id in written if id not in (end_id, tokenizer.pad_id) and id < tokenizer.vocab_size]
        found.append(f"{text} → {tokenizer.decode(kept)}")
    return found
