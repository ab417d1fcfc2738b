"""Labels of texts or pairs of texts: classes (`classify`), numbers (`regress`), a tag for each word (`tag`)."""

from collections.abc import Iterator

import numpy as np

from cutaway.data.batches import Batch
from cutaway.model.model import Model
from cutaway.objectives import IGNORED, as_tensors
from cutaway.objectives.classify import Labels
from cutaway.objectives.images import ImageLabels
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks.special_tokens import hiding

LONGEST = 80  # characters of a sample


def objective(recipe: Recipe, tokenizer: Tokenizer) -> Labels:
    o, is_encoder = recipe.objective, tokenizer.cls_id is not None
    return Labels(
        o.kind, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id if is_encoder else tokenizer.eos_id,
        segments=is_encoder, smoothing=o.smoothing, auxiliary=o.auxiliary,
        hiding=hiding(recipe, tokenizer) if o.auxiliary and is_encoder else None,
    )  # fmt: skip


def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    """`the text → the model's answer (true: the label)`."""
    return list(_samples(model, dataset, n))


def _samples(model: Model, dataset: TrainingData, n: int) -> Iterator[str]:
    names, objective = dataset.model_settings.get("labels"), dataset.objective
    assert isinstance(objective, Labels | ImageLabels)
    for raw, arrays in dataset.examples(n):
        scores = objective.answers(model, as_tensors(arrays, model.device)).float().cpu().numpy()
        answers = scores[..., 0] if names is None else scores.argmax(axis=-1)
        for row, (answer, target) in enumerate(zip(answers, arrays["targets"], strict=True)):
            counted = np.atleast_1d(target) != IGNORED  # a tag for each word, or one label
            said, truth = (
                " ".join(f"{x:.3g}" if names is None else names[x] for x in np.atleast_1d(side)[counted])
                for side in (answer, target)
            )
            yield f"{_text(raw, row, dataset.tokenizer)} → {said} (true: {truth})"


def _text(raw: Batch, row: int, tokenizer: Tokenizer | None) -> str:
    """The beginning of a text, or of each text of a pair; the number of an image."""
    if tokenizer is None:
        return f"picture {raw['example'][row]}"
    names = ["text"] if "text" in raw else ["first", "second"]
    texts = [tokenizer.decode(raw[name][row, : raw[f"{name}_length"][row]].tolist()) for name in names]
    return " / ".join(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for text in texts)
