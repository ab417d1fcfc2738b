"""`cutaway.inside.<name>`: each has a docstring, functions check their arguments, and every example runs."""

import inspect as inspection
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.classifiers import classifier
from helpers.classifiers import wordpiece as words_of_classifier
from helpers.inside_commands import pieces
from helpers.masked_models import masked, wordpiece
from helpers.tiny_models import some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import quick
from helpers.winograd_sentences import TIRED, WIDE, WORDS

from cutaway import inside
from cutaway.toys.names import word_tokenizer

CALLED = {name: getattr(inside, name) for name in inside.__all__ if callable(getattr(inside, name))}
FREE = {"last_real", "short_name", "token_names", "token_words"}  # small, and called for every name in a picture
RESULTS = {  # classes that our functions make, and what only a run of a training can be asked
    *("Attribution", "CircuitReport", "CircuitTask", "CircuitTestReport", "DeletionCurve", "Description", "Inspection"),
    *("Inspections", "Lens", "LensReport", "LogitDecomposition", "PatchReport", "Question", "Report"),
    *("ResidualDecomposition", "Sweep", "induction_over_training", "induction_report"),
}


def examples(name: str) -> list[str]:
    return [line.strip()[4:] for line in (CALLED[name].__doc__ or "").splitlines() if line.strip().startswith(">>> ")]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the examples use: a small model of each kind, and inputs."""
    templates = inside.IOI_TEMPLATES
    tokenizer = pieces()
    model = tiny("gpt2", vocab_size=280, max_len=64, dtype=torch.float32)
    ids, other_ids = some_ids(2, 7), some_ids(2, 7, seed=5)
    made = {name: getattr(inside, name) for name in inside.__all__}
    made |= {
        "model": model,
        "tokenizer": tokenizer,
        "ids": ids[:1],
        "other_ids": other_ids[:1],
        "torch": torch,
        "np": np,
    }
    made |= {"metric": inside.LogitDifference(3, 5), "templates": templates}
    made |= {"task": inside.circuit_task(model, ids, metric=inside.LogitDifference(3, 5), reference=other_ids)}
    made |= {"translator": quick(), "its_tokenizer": byte_level()}
    made |= {"classifier": classifier(dtype=torch.float32), "words": words_of_classifier()}
    made |= {"bert": masked(dtype=torch.float32), "its_words": wordpiece()}
    made |= {"vit": tiny("vit", dtype=torch.float32), "image": np.zeros((3, 8, 8), dtype=np.uint8)}
    schema_words = bert_tokenizer(WORDS)
    made |= {
        "speaker": tiny("gpt2", vocab_size=schema_words.vocab_size, max_len=64, start_id=0),
        "schema_words": schema_words,
    }
    made |= {"schemas": [TIRED, WIDE], "name_words": word_tokenizer()}
    made |= {"namer": tiny("gpt2", vocab_size=made["name_words"].vocab_size, max_len=64)}
    return made


@pytest.mark.parametrize("name", CALLED)
def test_a_public_name_has_a_docstring_and_an_example_that_runs(
    name: str, names: dict[str, Any], tmp_path: Path
) -> None:
    assert CALLED[name].__doc__
    assert examples(name) or name in RESULTS
    with chdir(tmp_path), redirect_stdout(StringIO()):
        space = dict(names)
        for line in examples(name):
            exec(compile(line, name, "exec"), space)


@pytest.mark.parametrize("name", [name for name, one in CALLED.items() if inspection.isfunction(one)])
def test_a_public_function_checks_its_arguments(name: str) -> None:
    assert getattr(CALLED[name], "checked", False) or name in FREE
