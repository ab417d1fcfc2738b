"""Whatever draws, draws by its own seed: the random numbers of whoever calls stay where they were."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers.long_calls import METRIC, READS, model_for
from helpers.text_generators import speaker
from helpers.tiny_models import some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level

from cutaway import generate
from cutaway.before.chomsky.experiment import run_experiment
from cutaway.certificate.inputs import short_inputs
from cutaway.inside import deletion_curve
from cutaway.inside.circuits.ioi import ioi_prompts
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.activations import record_activations
from cutaway.inside.patching.interventions import Ablate, Place, intervene
from cutaway.toys import names, reversal

IDS = some_ids(3, 6)


def resampled() -> None:
    model = tiny("gpt2")
    for more in ({}, {"source": record_activations(model, IDS, places="decoder.0.residual_after")}):
        with intervene(model, Ablate(Place("decoder.0.residual_after"), "resample", **more)):
            model(IDS)


DRAWS: dict[str, Callable[[], object]] = {
    "generate": lambda: generate(speaker(), byte_level(), "Hi", max_tokens=4, temperature=1.0, seed=3),
    "questions": lambda: short_inputs(tiny("gpt2"), None, 0),
    "prompts": lambda: ioi_prompts(names.word_tokenizer(), 4, seed=1),
    "names": lambda: names.train_names(steps=1, batch=2, n_layers=1),
    "reversal": lambda: reversal.train_reversal(steps=1, batch=2),
    "languages": lambda: run_experiment(["local"], ["none", "lstm"], length=4, steps=1, words=2, pool=9),
    "resampling": resampled,
    "resampling in a sweep": lambda: ablate_sweep(
        tiny("gpt2"), IDS, metric=METRIC, how="resample", source=IDS.flip(0), rows=3
    ),
    "deletion": lambda: deletion_curve(
        tiny("gpt2"), IDS[:1], scores=torch.arange(6.0)[None], metric=METRIC, n_random=2, batch_tokens=32
    ),
}


@contextmanager
def undisturbed() -> Iterator[None]:
    """The numbers of torch, numpy and Python go on as they would have."""
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    yield
    assert torch.equal(torch.get_rng_state(), before[0]), "torch's"
    assert np.random.get_state()[1].tolist() == before[1], "numpy's"
    if os.environ.get("CUTAWAY_TYPECHECK") == "0":  # the checker of types draws which item of a list it looks at
        assert random.getstate() == before[2], "Python's"


@pytest.mark.parametrize("name", DRAWS)
def test_what_draws_leaves_the_random_numbers_of_others_alone(name: str) -> None:
    with undisturbed():
        DRAWS[name]()


@pytest.mark.parametrize("name", sorted(READS.keys() - {"deletion_curve"}))
def test_looking_inside_leaves_the_random_numbers_of_others_alone(name: str) -> None:
    model = model_for(name)
    with undisturbed():
        READS[name](model, lambda done, total: None)
