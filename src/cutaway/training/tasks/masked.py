"""Masked language modelling, by itself or with BERT's next-sentence prediction (`pretrain`)."""

from collections.abc import Iterator

import torch

from cutaway.model.model import Model
from cutaway.objectives import IGNORED, as_tensors
from cutaway.objectives.masked import Masked, Pretraining
from cutaway.objectives.objective import Arrays
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks.special_tokens import hiding

NEAR = 24  # tokens of a sample, around its first blank


def objective(recipe: Recipe, tokenizer: Tokenizer) -> Masked:
    kind = Pretraining if recipe.objective.kind == "pretrain" else Masked
    return kind(hiding(recipe, tokenizer), cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)


def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    """`words with a [MASK] among them → what fills it (true: what was there)`."""
    return [
        line
        for _, arrays in dataset.examples(n)
        for row in range(len(arrays["ids"]))
        for line in _sample(model, dataset.text_tokenizer, arrays, row)
    ]


def _sample(model: Model, tokenizer: Tokenizer, arrays: Arrays, row: int) -> Iterator[str]:
    targets = arrays["targets"][row]
    truth, places = (values[targets != IGNORED] for values in (targets, arrays["at"][row]))
    if not len(places):
        return
    ids, real = arrays["ids"][row].copy(), arrays["real"][row]
    ids[places] = tokenizer.mask_id  # also where training keeps a word or puts another
    more: Arrays = {name: arrays[name][row][None] for name in ("real", "segments", "documents") if name in arrays}
    hidden = model.hidden(torch.from_numpy(ids)[None].to(model.device), **as_tensors(more, model.device))
    guessed = model.head(hidden[:, places])[0, :, : tokenizer.vocab_size].argmax(dim=-1).cpu().numpy()
    start = max(0, int(places[0]) - NEAR // 3)
    shown = slice(start, start + NEAR)
    text = tokenizer.decode(ids[shown][real[shown]].tolist(), skip_special=False)
    answer, true = (
        ", ".join(tokenizer.decode([id], skip_special=False).strip() for id in side[places < start + NEAR].tolist())
        for side in (guessed, truth)
    )
    yield f"{text} → {answer} (true: {true})"
