"""The residual stream against TransformerLens, on one GPT-2: the lens, every head's write, direct logit attribution."""

from pathlib import Path

import pytest
import torch
from helpers.parity.hooked_twins import hooked_twins
from helpers.parity.twins import assert_close

from cutaway.inside.residual.logit_lens import logit_lens
from cutaway.inside.residual.stream import decompose_residual

IDS = torch.randint(3, 53, (2, 9), generator=torch.Generator().manual_seed(0))
NAMES = {"embed": "embedding.tokens", "pos_embed": "embedding.positions", "bias": "decoder.*.attention.bias"}
NAMES |= {f"{layer}_mlp_out": f"decoder.{layer}.feed_forward" for layer in range(3)}
NAMES |= {f"L{layer}H{head}": f"decoder.{layer}.attention.{head}" for layer in range(3) for head in range(3)}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_stream_and_its_parts(tmp_path: Path, dtype: torch.dtype, tied: bool) -> None:
    both, hooked = hooked_twins(tmp_path, dtype, tie_word_embeddings=tied)
    with torch.no_grad():
        _, cache = hooked.run_with_cache(IDS)
    found = decompose_residual(both.ours, IDS)
    theirs, labels = cache.get_full_resid_decomposition(expand_neurons=False, return_labels=True)
    for label, vector in zip(labels, theirs, strict=True):
        ours = found.sum(NAMES[label])
        assert_close(ours, vector.expand_as(ours).to(dtype), TOLERANCE[dtype])
    assert_close(found.total(), cache["blocks.2.hook_resid_post"], TOLERANCE[dtype])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_direct_logit_attribution(tmp_path: Path, dtype: torch.dtype, tied: bool) -> None:
    both, hooked = hooked_twins(tmp_path, dtype, folded=True, tie_word_embeddings=tied)
    tolerance = max(TOLERANCE[dtype], 1e-6)  # they fold in single precision
    next_ones = IDS.roll(-1, 1)
    with torch.no_grad():
        logits, cache = hooked.run_with_cache(IDS)
        parts, labels = cache.get_full_resid_decomposition(expand_neurons=False, return_labels=True)
        theirs = cache.logit_attrs(parts, tokens=next_ones, has_batch_dim=True)
    found = decompose_residual(both.ours, IDS).to_logits(next_ones)
    for label, score in zip(labels, theirs, strict=True):
        assert_close(found.sum(NAMES[label])[..., 0], score.to(dtype), tolerance)
    assert_close(found.total(), logits.gather(-1, next_ones[..., None]).to(dtype), tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_lens(tmp_path: Path, dtype: torch.dtype) -> None:
    both, hooked = hooked_twins(tmp_path, dtype)
    with torch.no_grad():
        _, cache = hooked.run_with_cache(IDS)
        streams = [cache["blocks.0.hook_resid_pre"], *(cache[f"blocks.{layer}.hook_resid_post"] for layer in range(3))]
        theirs = torch.stack([hooked.unembed(hooked.ln_final(stream)) for stream in streams]).softmax(-1)
        scaled = cache.accumulated_resid(layer=-1, apply_ln=True)  # with the last layer's scale
    found = logit_lens(both.ours, IDS, tokens=range(53))
    assert_close(found.token_probability, theirs, TOLERANCE[dtype])
    assert torch.equal(found.top_tokens, theirs.topk(5).indices)
    assert_close(scaled[-1] @ hooked.W_U, both.ours(IDS).detach(), TOLERANCE[dtype])
