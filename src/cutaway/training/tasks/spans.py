"""Span corruption: the decoder writes the spans that are missing from the source (T5)."""

from cutaway.model.model import Model
from cutaway.objectives.spans import SpanCorruption
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks import task_of
from cutaway.training.tasks.special_tokens import required_id


def objective(recipe: Recipe, tokenizer: Tokenizer) -> SpanCorruption:
    return SpanCorruption(
        start_id=required_id("begins a sentence", tokenizer.bos_id),
        end_id=required_id("ends a sentence", tokenizer.eos_id),
        sentinels=[tokenizer.id(name) for name in task_of(recipe).sentinels if name in tokenizer],
        share=recipe.objective.mask_share,
    )


def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    return []
