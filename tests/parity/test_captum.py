"""Gradients against Captum, on the same weights in `transformers`: language model, classifier, pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients, LayerGradientXActivation, LayerIntegratedGradients
from helpers.parity.twins import Twins, assert_close, twins_of
from torch import Tensor
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

from cutaway.inside.attribution.by_gradient import gradient_x_input, integrated_gradients
from cutaway.inside.attribution.result import Attribution

STEPS, TOLERANCE = 20, 1e-4


def gpt2(folder: Path) -> Twins:
    return twins_of(GPT2LMHeadModel(GPT2Config(vocab_size=53, n_positions=12, n_embd=24, n_layer=2, n_head=3)), folder)


def bert(folder: Path) -> Twins:
    numbers = {"vocab_size": 53, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    numbers |= {"intermediate_size": 40, "max_position_embeddings": 12, "num_labels": 3}
    return twins_of(BertForSequenceClassification(BertConfig(**numbers)), folder)


def of_texts(kind: str, folder: Path) -> tuple[Twins, Callable[[Tensor], Tensor], Any, Callable[[Tensor], Tensor]]:
    """Twins, their forward pass, their embedding, our metric."""
    if kind == "gpt2":
        twins = gpt2(folder)
        return twins, lambda ids: twins.theirs(ids).logits[:, -1], twins.theirs.transformer.wte, lambda s: s[:, -1, 2]
    twins = bert(folder)
    layer = twins.theirs.bert.embeddings.word_embeddings
    return twins, lambda ids: twins.theirs(ids).logits, layer, lambda scores: scores[:, 2]


def stacked(found: list[Attribution]) -> Tensor:
    return torch.stack([one.scores[0] for one in found])


@pytest.mark.parametrize("rule", ["gauss_legendre", "midpoint"])
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_integrated_gradients_of_a_text(kind: str, rule: str, tmp_path: Path) -> None:
    twins, forward, layer, metric = of_texts(kind, tmp_path)
    ids = torch.randint(53, (3, 9))
    baseline = torch.full_like(ids, 5)
    theirs = LayerIntegratedGradients(forward, layer).attribute(
        ids,
        baseline,
        target=2,
        n_steps=STEPS,
        method={"gauss_legendre": "gausslegendre", "midpoint": "riemann_middle"}[rule],
    )
    for given in (5, baseline):
        ours = integrated_gradients(twins.ours, ids, metric=metric, baseline=given, steps=STEPS, rule=rule)
        assert_close(stacked(ours), theirs.sum(dim=-1).detach(), TOLERANCE)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_gradient_times_input_of_a_text(kind: str, tmp_path: Path) -> None:
    twins, forward, layer, metric = of_texts(kind, tmp_path)
    ids = torch.randint(53, (3, 9))
    theirs = LayerGradientXActivation(forward, layer).attribute(ids, target=2)
    ours = gradient_x_input(twins.ours, ids, metric=metric)
    assert_close(stacked(ours), theirs.sum(dim=-1).detach(), TOLERANCE)


def test_pixels_and_patches_of_a_picture(tmp_path: Path) -> None:
    numbers = {"image_size": 12, "patch_size": 4, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    twins = twins_of(ViTForImageClassification(ViTConfig(**numbers, intermediate_size=40, num_labels=5)), tmp_path)

    def forward(pictures: Tensor) -> Tensor:
        return twins.theirs(pictures).logits

    pictures, other = torch.randn(2, 3, 12, 12), torch.randn(1, 3, 12, 12)
    asking: dict[str, Any] = {"metric": lambda scores: scores[:, 2], "at": "pixels"}
    path = {"target": 2, "n_steps": STEPS, "method": "gausslegendre"}
    ours = integrated_gradients(twins.ours, pictures, baseline=other, steps=STEPS, **asking)
    theirs = IntegratedGradients(forward).attribute(pictures, other.expand_as(pictures), **path)
    assert_close(stacked(ours), theirs.sum(dim=1).flatten(1).detach(), TOLERANCE)
    plain = InputXGradient(forward).attribute(pictures.requires_grad_(), target=2)
    assert_close(
        stacked(gradient_x_input(twins.ours, pictures.detach(), **asking)),
        plain.sum(dim=1).flatten(1).detach(),
        TOLERANCE,
    )
    pictures = pictures.detach()
    layer = twins.theirs.vit.embeddings.patch_embeddings
    theirs = LayerIntegratedGradients(forward, layer).attribute(pictures, other.expand_as(pictures), **path)
    vectors = twins.ours.embedding.project(torch.nn.functional.unfold(other, 4, stride=4).transpose(1, 2)).detach()
    at_patches = {**asking, "at": "patches"}
    ours = integrated_gradients(twins.ours, pictures, baseline=vectors, steps=STEPS, **at_patches)
    assert_close(stacked(ours), theirs.sum(dim=-1).detach(), TOLERANCE)
