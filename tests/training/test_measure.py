"""Measuring: a mean over all examples, the same every time, and a model that goes on training as before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, f1_score
from toy import toy

from cutaway.model.model import Model
from cutaway.objectives import IGNORED
from cutaway.objectives.objective import as_tensors
from cutaway.training.material import prepare
from cutaway.training.material.common import Material
from cutaway.training.measure import scores, validate
from cutaway.training.start import starting_model

KINDS = ["lines", "masked", "pretrain", "spans", "translate", "classify", "regress", "tag", "images"]


def case(kind: str, folder: Path, **more: Any) -> tuple[Material, Model]:
    """Weights large enough that scores differ, and dropout, which must be off when something is measured."""
    recipe = toy(kind, folder, model={"dropout": 0.3}, **more)
    material = prepare(recipe, None)
    model, _ = starting_model(recipe, material.numbers, torch.device("cpu"))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return material, model.train()


@pytest.mark.parametrize("kind", KINDS)
def test_every_evaluation_asks_the_same_and_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    """The hidden words and cut spans are the same each time, or no two evaluations could be compared."""
    material, model = case(kind, tmp_path)
    assert material.valid is not None
    before = torch.get_rng_state()
    first, again = (validate(model, material.objective, material.valid) for _ in range(2))
    assert first == again
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_loss_is_the_mean_over_examples_not_over_batches(tmp_path: Path) -> None:
    """Batches of one row and of all rows: the same, though rows have between 2 and 25 targets."""
    found = []
    for rows in (1, 50):
        material, _ = case("translate", tmp_path, train={"rows": rows, "tokens": 4096}, data={"valid_share": 0.5})
        torch.manual_seed(0)
        _, model = case("translate", tmp_path)
        assert material.valid is not None
        assert (material.valid.steps == material.valid.n_examples) == (rows == 1)
        found.append(validate(model, material.objective, material.valid)["loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_several_terms_are_told_apart_and_weighed(tmp_path: Path) -> None:
    material, model = case("classify", tmp_path, objective={"auxiliary": 0.25})
    assert material.valid is not None
    found = validate(model, material.objective, material.valid)
    assert found["loss"] == pytest.approx(found["loss_label"] + 0.25 * found["loss_auxiliary"])


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_classes_are_scored_as_scikit_learn_does(kind: str, tmp_path: Path) -> None:
    material, model = case(kind, tmp_path)
    assert material.valid is not None
    found = validate(model, material.objective, material.valid)
    model.eval()
    wanted, said, losses = [], [], []
    for step in range(material.valid.steps):
        batch = as_tensors(material.objective.prepare(material.valid(step), np.random.default_rng(0)))
        out = model(batch["ids"], real=batch["real"], segments=batch["segments"]).detach()
        there = batch["targets"] != IGNORED
        said += out.argmax(-1)[there].tolist()
        wanted += batch["targets"][there].tolist()
        losses += F.cross_entropy(out[there], batch["targets"][there], reduction="none").tolist()
    assert len(wanted) >= 12
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["accuracy"] == pytest.approx(accuracy_score(wanted, said))
    if kind == "classify":
        assert found["macro_f1"] == pytest.approx(f1_score(wanted, said, average="macro"))
    else:
        assert found["f1"] == pytest.approx(f1_score(wanted, said))


def test_numbers_are_scored_by_correlation() -> None:
    said, wanted = np.array([[1.0], [2.0], [9.0], [3.0]]), np.array([1.0, 2.0, np.nan, 4.0])
    found = scores(said, wanted)
    assert found["spearman"] == pytest.approx(1.0)
    assert found["pearson"] == pytest.approx(np.corrcoef([1, 2, 3], [1, 2, 4])[0, 1])


def test_the_first_batches_alone_where_the_recipe_says_so(tmp_path: Path) -> None:
    material, model = case("images", tmp_path, train={"rows": 3})
    assert material.valid is not None
    assert material.valid.steps == 4
    some, whole = (validate(model, material.objective, material.valid, batches=n)["loss"] for n in (1, 0))
    assert some != whole
    assert validate(model, material.objective, material.valid, batches=99)["loss"] == whole
