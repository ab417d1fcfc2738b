"""The residual stream: everything written to it adds up to what is read at the end."""

import pytest
import torch
from helpers.tiny_models import close, inputs, tiny
from torch import Tensor

from cutaway.model.norms import LayerNorm
from cutaway.model.tap import watch

PRE_NORM = {"gpt2": "decoder", "llama": "decoder", "vit": "encoder", "transformer-pre-norm": "decoder", "t5": "decoder"}
POST_NORM = {"bert": "encoder", "gpt": "decoder", "transformer": "decoder", "roformer": "encoder"}


def sublayers(side: str, layer: int, seen: dict[str, Tensor]) -> list[str]:
    names = ["attention", "cross", "feed_forward"]
    return [f"{side}.{layer}.{name}" for name in names if f"{side}.{layer}.{name}.output" in seen]


def what_enters(side: str, seen: dict[str, Tensor]) -> Tensor:
    return seen[f"{side}.0.residual_before"]


@pytest.mark.parametrize(("name", "side"), PRE_NORM.items())
def test_pre_norm_the_stream_is_the_exact_sum_of_all_writes(name: str, side: str) -> None:
    model = tiny(name)
    with watch(model, "*") as seen:
        model(*inputs(name))
    stack = getattr(model, side)
    writes = [seen[f"{part}.output"] for layer in range(len(stack)) for part in sublayers(side, layer, seen)]
    total = what_enters(side, seen) + sum(writes)
    assert close(total, seen[f"{side}.{len(stack) - 1}.residual_after"])
    assert close(stack.final_norm(total), seen[f"{side}.final_norm.output"])


@pytest.mark.parametrize(("name", "side"), POST_NORM.items())
def test_post_norm_it_is_the_sum_with_each_norm_frozen_and_its_bias_a_writer(name: str, side: str) -> None:
    model = tiny(name)
    with watch(model, "*") as seen:
        model(*inputs(name))
    stack = getattr(model, side)
    parts = [what_enters(side, seen)]
    for layer in range(len(stack)):
        for part in sublayers(side, layer, seen):
            norm = model.get_submodule(f"{part}_norm")
            assert isinstance(norm, LayerNorm)
            scale = seen[f"{part}_norm.scale"]
            parts.append(seen[f"{part}.output"])
            parts = [(write - write.mean(-1, keepdim=True)) * scale * norm.weight for write in parts]
            parts.append(norm.bias.expand_as(parts[0]))
    assert close(torch.stack(parts).sum(0), seen[f"{side}.{len(stack) - 1}.residual_after"])


@pytest.mark.parametrize("name", [*PRE_NORM, *POST_NORM])
def test_each_heads_share_of_the_write_adds_up(name: str) -> None:
    model, side = tiny(name), (PRE_NORM | POST_NORM)[name]
    with watch(model, f"{side}.1.attention.*") as seen:
        model(*inputs(name))
    attention = getattr(model, side)[1].attention
    heads = seen[f"{side}.1.attention.heads"]
    shares = attention.output.weight.unflatten(1, (heads.shape[1], -1))
    written = torch.einsum("bhqd,mhd->bqm", heads, shares)
    bias = attention.output.bias
    assert close(written if bias is None else written + bias, seen[f"{side}.1.attention.output"])


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_embedding_is_the_sum_of_its_parts(name: str) -> None:
    model = tiny(name)
    with watch(model, "embedding.*") as seen:
        model(*inputs(name))
    total = sum(
        seen[f"embedding.{part}"] for part in ("tokens", "segments", "positions") if f"embedding.{part}" in seen
    )
    norm = model.embedding.norm
    assert close(total if norm is None else norm(total), seen["embedding.output"])
