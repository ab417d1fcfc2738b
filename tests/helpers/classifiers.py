"""Classifiers with a WordPiece tokenizer, and sentences for them."""

import numpy as np
import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.tiny_models import tiny

from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

WORDS = "[UNK] a man sleeps he is awake the dog ##s runs no one saw it".split()
SENTENCES = ["a man sleeps", "he is awake", "the dog runs", "no one saw it", "a dog saw the man", "it is a man"]
PAIRS = list(zip(SENTENCES, reversed(SENTENCES), strict=True))


def wordpiece() -> Tokenizer:
    return bert_tokenizer(WORDS)


def classifier(name: str = "bert", **changes) -> Model:
    return tiny(name, **{"task": "classify", "n_classes": 3, "seed": 1, **changes})


def alone(model: Model, tokenizer: Tokenizer, text: str | tuple[str, str]) -> np.ndarray:
    """The model's answer to one text, the plain way."""
    if isinstance(text, str):
        return model(torch.tensor([tokenizer.encode(text)]))[0].detach().numpy()
    pair = tokenizer.encode_pair(*text)
    segmented = model.config.family in ("bert", "roformer")
    more = {"segments": torch.tensor([pair.segments])} if segmented else {}
    return model(torch.tensor([pair.ids]), **more)[0].detach().numpy()


TAGGED = [sentence.split() for sentence in ["a man sleeps", "the dogs runs", "no one saw it"]]
LABELS = ("O", "B-X", "I-X")
