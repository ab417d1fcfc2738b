"""Small models learn to label sentences, and to translate both ways between two toy languages."""

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from cutaway.checkpoints import load, load_tokenizer
from cutaway.decoding import greedy_translate
from cutaway.model.model import EncoderDecoderModel
from cutaway.training.recipe_file import recipe_from
from cutaway.training.train import train

NOUNS, TIMES = "film book song meal trip".split(), "today again yesterday".split()
GOOD, BAD = "good great lovely".split(), "bad awful boring".split()


def judgements() -> list[tuple[str, str]]:
    """the film was not bad today → good: neither word alone says it."""
    found = []
    for noun, negation, word, time in product(NOUNS, ("", "not ", "never ", "really "), GOOD + BAD, TIMES):
        good = (word in GOOD) != (negation in ("not ", "never "))
        found.append((f"the {noun} was {negation}{word} {time}", "good" if good else "bad"))
    return found


@pytest.mark.parametrize("family", ["bert", pytest.param("gpt2", marks=pytest.mark.long)])
def test_sentences_are_labelled(family: str, tmp_path: Path) -> None:
    """97 % of 90 sentences that were never seen, half of them good; the decoder learns the next word beside it."""
    every = judgements()
    Random(0).shuffle(every)
    for name, rows in {"train.tsv": every[:-90], "new.tsv": every[-90:]}.items():
        (tmp_path / name).write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    size = {"bert": "bert-tiny", "gpt2": "gpt2"}[family]
    recipe: dict[str, Any] = {
        "model": {"size": size, "n_layers": 2, "d_model": 32, "n_heads": 2, "d_ff": 64, "dropout": 0.0},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 90} if family == "bert" else {"kind": "word"},
        "data": {"root": str(tmp_path), "train": ["train.tsv"], "valid": ["new.tsv"], "seq_len": 32},
        "objective": {"kind": "classify", "auxiliary": 0.5 if family == "gpt2" else 0.0},
        "train": {"steps": 300, "rows": 32, "tokens": 1024, "threads": 1},
        "optimizer": {"kind": "muon", "rate": 3e-3, "weight_decay": 0.01},
        "schedule": {"kind": "linear", "warmup": 20},
        "evaluate": {"every": 300, "keep_best": False},  # measured once, at the end: nothing is chosen by it
    }
    scores = train(recipe_from(recipe), tmp_path / "out").scores
    assert scores["accuracy"] >= 0.97
    assert load(tmp_path / "out").config.labels == ("bad", "good")


# --- two languages, one model -----------------------------------------------------------------------------------------

ADJECTIVES = {"red": "rot", "old": "alt", "big": "gross", "new": "neu", "hot": "heiss"}
THINGS = {"house": "haus", "tree": "baum", "bird": "vogel", "car": "auto", "ship": "schiff"}
ACTIONS = {"sees": "sieht", "finds": "findet", "takes": "nimmt", "likes": "mag"}


def pairs() -> list[tuple[str, str]]:
    """the red house sees a bird · haus rot vogel sieht: the adjective behind its noun, the verb at the end."""
    found = []
    for adjective, thing, action, other in product(ADJECTIVES, THINGS, ACTIONS, THINGS):
        german = f"{THINGS[thing]} {ADJECTIVES[adjective]} {THINGS[other]} {ACTIONS[action]}"
        found.append((f"the {adjective} {thing} {action} a {other}", german))
    return found


def test_one_model_translates_both_ways(tmp_path: Path) -> None:
    """95 % of 60 sentences that were never seen, in each direction; the tag in front says which is wanted."""
    every = pairs()
    Random(0).shuffle(every)
    seen, new = every[:-60], every[-60:]
    for side, name in enumerate(("en", "de")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in seen))
    recipe: dict[str, Any] = {
        "model": {
            "size": "transformer-tiny", "n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 48, "n_heads": 2,
            "d_ff": 96, "dropout": 0.0,
        },
        "tokenizer": {"kind": "word"},
        "data": {
            "root": str(tmp_path), "format": "parallel", "header": ["en", "de"], "train": ["en", "de"], "seq_len": 12,
            "directions": ["en-de", "de-en"],
        },
        "objective": {"kind": "translate", "smoothing": 0.1},
        "train": {"steps": 300, "tokens": 1024, "threads": 1},
        "optimizer": {"kind": "adam", "rate": 3e-3},
        "schedule": {"kind": "inverse_sqrt", "warmup": 60},
    }  # fmt: skip
    train(recipe_from(recipe), tmp_path / "out")
    model, tokenizer = load(tmp_path / "out"), load_tokenizer(tmp_path / "out")
    assert isinstance(model, EncoderDecoderModel)
    for side, to in enumerate(("en", "de")):
        ids = [[tokenizer.tag_id(to), *tokenizer.encode(pair[1 - side]), tokenizer.eos_id] for pair in new]
        written = greedy_translate(model, torch.tensor(ids), n=10).tolist()
        right = sum(tokenizer.decode(row) == pair[side] for row, pair in zip(written, new, strict=True))
        assert right >= 57, (to, right)
