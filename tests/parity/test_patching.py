"""Patching beside TransformerLens, on the same weights: each cell to 1e-4."""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.parity.hooked_twins import hooked_twins
from torch import Tensor
from transformer_lens import patching

from cutaway.inside.patching.interventions import Ablate, Place, intervene
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.paths import patch_paths
from cutaway.inside.patching.sweep import patch_sweep

SWEEPS = {
    "residual": patching.get_act_patch_resid_pre,
    "residual_after_attention": patching.get_act_patch_resid_mid,
    "attention": patching.get_act_patch_attn_out,
    "feed_forward": patching.get_act_patch_mlp_out,
    "heads": patching.get_act_patch_attn_head_out_all_pos,
    "attention.query": patching.get_act_patch_attn_head_q_all_pos,
    "attention.key": patching.get_act_patch_attn_head_k_all_pos,
    "attention.value": patching.get_act_patch_attn_head_v_all_pos,
    "attention.pattern": patching.get_act_patch_attn_head_pattern_all_pos,
}


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Tensor, Tensor]:
    both, hooked = hooked_twins(Path(tmp_path_factory.mktemp("twins")))
    ids = torch.randint(3, 53, (4, 7), generator=torch.Generator().manual_seed(0))
    return both.ours.eval(), hooked.eval(), ids[:2], ids[2:]


def near(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= 1e-4 * theirs.abs().max().clamp(min=1))


@pytest.mark.parametrize("over", SWEEPS)
def test_every_sweep(setting: Any, over: str) -> None:
    ours, hooked, clean, corrupted = setting
    get = SWEEPS[over]
    with torch.no_grad():
        _, cache = hooked.run_with_cache(clean)
        theirs = get(hooked, corrupted, cache, lambda logits: (logits[:, -1, 5] - logits[:, -1, 7]).mean())
    found = patch_sweep(ours, clean, corrupted, LogitDifference(5, 7), over=over)
    assert near(found.values.mean(dim=-1), theirs)
    assert theirs.std() > 1e-3


def test_heads_at_every_position(setting: Any) -> None:
    ours, hooked, clean, corrupted = setting
    with torch.no_grad():
        _, cache = hooked.run_with_cache(clean)
        theirs = patching.get_act_patch_attn_head_out_by_pos(
            hooked, corrupted, cache, lambda logits: (logits[:, -1, 5] - logits[:, -1, 7]).mean()
        )
    found = patch_sweep(ours, clean, corrupted, LogitDifference(5, 7), over="heads", positions=True)
    assert near(found.values.mean(dim=-1), theirs)


@pytest.mark.parametrize("head", [0, 2])
def test_an_ablated_head(setting: Any, head: int) -> None:
    ours, hooked, ids, _ = setting

    def zero(value: Tensor, hook: Any) -> Tensor:
        value = value.clone()
        value[:, :, head] = 0
        return value

    with torch.no_grad():
        theirs = hooked.run_with_hooks(ids, fwd_hooks=[("blocks.1.attn.hook_z", zero)])
        with intervene(ours, Ablate(Place.of(f"decoder.1.attention.{head}"))):
            assert near(ours(ids), theirs)


@pytest.mark.parametrize("feed_forward", ["recomputed", "held"])
def test_a_path_to_a_query_made_of_their_hooks(setting: Any, feed_forward: str) -> None:
    """The three runs of the indirect-object paper, written with hooks."""
    ours, hooked, clean, corrupted = setting
    with torch.no_grad():
        _, own = hooked.run_with_cache(corrupted)
        _, other = hooked.run_with_cache(clean)

        def hold(name: str) -> tuple[str, Any]:
            kept = own[name].clone()
            if name == "blocks.0.attn.hook_z":
                kept[:, :, 1] = other[name][:, :, 1]
            return name, lambda value, hook: kept

        names = [f"blocks.{layer}.attn.hook_z" for layer in range(3)]
        names += [f"blocks.{layer}.hook_mlp_out" for layer in range(3)] if feed_forward == "held" else []
        arrived: dict[str, Tensor] = {}

        def take(value: Tensor, hook: Any) -> None:
            arrived["q"] = value.clone()

        hooked.run_with_hooks(corrupted, fwd_hooks=[*map(hold, names), ("blocks.2.attn.hook_q", take)])

        def put(value: Tensor, hook: Any) -> Tensor:
            value = value.clone()
            value[:, :, 2] = arrived["q"][:, :, 2]
            return value

        theirs = hooked.run_with_hooks(corrupted, fwd_hooks=[("blocks.2.attn.hook_q", put)])
        plain = hooked(corrupted)
    found = patch_paths(
        ours,
        corrupted,
        clean,
        "decoder.0.attention.1",
        Place("decoder.2.attention.query", heads=2),
        feed_forward=feed_forward,  # type: ignore[arg-type]
    )
    assert near(found, theirs)
    assert (theirs - plain).abs().max() > 1e-3
