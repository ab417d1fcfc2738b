"""The same GPT-2 three times: `transformers`, Cutaway, and TransformerLens' bridge around the first.

both, hooked = hooked_twins(tmp_path)
logits, cache = hooked.run_with_cache(ids)      # cache["blocks.1.hook_resid_post"], cache.stack_head_results() …
both.ours(ids)
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from helpers.parity.twins import Twins, twins_of
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import GPT2Config, GPT2LMHeadModel

NUMBERS: dict[str, Any] = {"vocab_size": 53, "n_positions": 12, "n_embd": 24, "n_layer": 3, "n_head": 3, "n_inner": 40}
NUMBERS |= {"layer_norm_epsilon": 0.01, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def hooked_twins(
    folder: Path, dtype: torch.dtype = torch.float32, *, folded: bool = False, **numbers: Any
) -> tuple[Twins, TransformerBridge]:
    """A tiny random GPT-2, ours and theirs. Nothing is folded into other weights, so that all taps compare; `folded`
    gives the final norm's weight to the de-embedding, which their logit attribution takes for granted."""
    both = twins_of(GPT2LMHeadModel(GPT2Config(**NUMBERS | numbers)), folder, dtype)
    hooked = build_bridge_from_module(
        deepcopy(both.theirs), "GPT2LMHeadModel", hf_config=both.theirs.config, device="cpu", dtype=dtype
    )
    if folded:
        hooked.enable_compatibility_mode(
            disable_warnings=True, center_writing_weights=False, center_unembed=False, fold_value_biases=False
        )
    hooked.set_use_attn_result(True)  # keeps what each head writes
    return both, hooked
