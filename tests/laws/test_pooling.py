"""Laws of one vector for a whole text: padding has no part in it, wherever it stands."""

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import ENCODERS, some_ids, tiny

from cutaway.checkpoints import export
from cutaway.errors import CheckpointError, ConfigError
from cutaway.model.model import Model

POOLINGS = ["first", "mean"]


def classifier(name: str, pooling: str) -> Model:
    return tiny(name, task="classify", n_classes=3, pooling=pooling)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_padding_changes_no_score(name: str, pooling: str) -> None:
    model, ids = classifier(name, pooling), some_ids(2, 5, seed=3)
    alone = model(ids)
    filler = some_ids(2, 3, seed=4)
    for left in (0, 1, 3):
        padded = torch.cat([filler[:, :left], ids, filler[:, left:]], dim=1)
        real = torch.zeros_like(padded, dtype=torch.bool)
        real[:, left : left + 5] = True
        assert torch.allclose(model(padded, real=real), alone, atol=1e-10), left


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_filler_row_leaves_the_others_their_gradients(name: str, pooling: str) -> None:
    """The last batch of an epoch is filled up with rows that hold nothing."""
    model, ids = classifier(name, pooling), some_ids(3, 5, seed=3)
    gradients = []
    for rows in (2, 3):
        real = torch.ones(rows, 5, dtype=torch.bool)
        real[2:] = False
        model.zero_grad()
        model(ids[:rows], real=real)[:2].square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradients[1][name], gradient, atol=1e-10), name


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_the_mean_weighs_all_tokens_alike(name: str) -> None:
    model, ids = classifier(name, "mean"), some_ids(2, 5, seed=3)
    states = torch.stack([model.hidden(ids)[:, i] for i in range(5)])
    assert torch.allclose(model(ids), model.head.classes(states.sum(dim=0) / 5), atol=1e-12)
    assert not any("pool.dense" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("name", ENCODERS)
def test_what_the_hugging_face_layout_cannot_say_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match='pooling="first"'):
        export(classifier(name, "mean"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="pooling='max' is neither 'first' nor 'mean'"):
        classifier("bert", "max")
