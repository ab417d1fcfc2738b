"""A peer without its casts: some compute norms and angles in fp32 always, behind which a small fault could hide."""

from functools import partial

import torch
import torch.nn.functional as F
from helpers.parity.twins import Twins
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralRMSNorm, MistralRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5LayerNorm


def without_casts(twins: Twins) -> None:
    """Norms and angles in double precision; the frequencies are taken as the peer computed them, if they are right."""
    for part in twins.theirs.modules():
        if isinstance(part, LlamaRMSNorm | MistralRMSNorm | T5LayerNorm):
            part.forward = partial(norm, part)
        elif isinstance(part, LlamaRotaryEmbedding | MistralRotaryEmbedding):
            part.forward = partial(angles, part)
            theirs = part.inv_freq.double()
            torch.testing.assert_close(twins.ours.rotary.frequencies, theirs, rtol=1e-6, atol=0)
            twins.ours.rotary.frequencies = theirs


def norm(part: nn.Module, x: Tensor) -> Tensor:
    return F.rms_norm(x, part.weight.shape, part.weight, part.variance_epsilon)


def angles(part: nn.Module, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    half = position_ids[..., None].double() * part.inv_freq.double()
    angle = torch.cat([half, half], dim=-1)
    return angle.cos(), angle.sin()
