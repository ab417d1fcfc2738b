"""Language modelling: each token is predicted from those before it."""

import torch

from cutaway.decoding.search.greedy import greedy
from cutaway.model.model import DecoderModel, Model
from cutaway.objectives import NextToken
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe import Recipe


def objective(recipe: Recipe, tokenizer: Tokenizer) -> NextToken:
    """Rows of a table and lines start with <sos>; a corpus of lines has its <eos> already."""
    is_table = recipe.data.format == "table"
    starts = is_table or recipe.data.split == "line"
    return NextToken(start_id=tokenizer.bos_id if starts else None, end_id=tokenizer.eos_id if is_table else None)


def samples(model: Model, dataset: TrainingData, n: int, prompt: str) -> list[str]:
    """How the prompt goes on."""
    if not isinstance(model, DecoderModel):
        return []
    tokenizer, longest = dataset.text_tokenizer, model.max_len or 1 << 20
    ids = (tokenizer.encode(prompt, special=False) or [tokenizer.bos_id or 0])[-longest:]
    written = greedy(model, torch.tensor([ids], device=model.device), n=min(60, longest - len(ids) + 1))[0].tolist()
    return [tokenizer.decode([*ids, *(id for id in written if id < tokenizer.vocab_size)])]
