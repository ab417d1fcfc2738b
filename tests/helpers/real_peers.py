"""`transformers` beside our models with real weights: the same prompts, the likeliest token, fifty times."""

import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from cutaway.decoding import greedy
from cutaway.model.model import DecoderModel

N = 50


def assembled(config: LlamaConfig, weights: dict[str, Tensor]) -> LlamaForCausalLM:
    """Their model with exactly these weights."""
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    copies = {"lm_head.weight"} if config.tie_word_embeddings else set()
    report = theirs.load_state_dict(weights, strict=False, assign=True)
    assert (set(report.missing_keys), report.unexpected_keys) == (copies, [])
    theirs.tie_weights()
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)  # made on the meta device, it has no numbers
    return theirs.eval()


def batch_of(prompts: list[list[int]], side: str) -> tuple[Tensor, Tensor]:
    """The prompts as rows, padded with 0, and where they are real."""
    longest = max(map(len, prompts))
    rows = [[(0, False)] * (longest - len(prompt)) for prompt in prompts]
    full = [[(id_, True) for id_ in prompt] for prompt in prompts]
    both = [pad + real if side == "left" else real + pad for pad, real in zip(rows, full, strict=True)]
    return torch.tensor([[id_ for id_, _ in row] for row in both]), torch.tensor(
        [[real for _, real in row] for row in both]
    )


def their_tokens(theirs: LlamaForCausalLM, prompts: list[list[int]]) -> Tensor:
    ids, real = batch_of(prompts, "left")
    theirs.generation_config = GenerationConfig(do_sample=False, max_new_tokens=N, eos_token_id=None, pad_token_id=0)
    with torch.inference_mode():
        return theirs.generate(ids, attention_mask=real.long())[:, ids.shape[1] :]


def our_tokens(ours: DecoderModel, prompts: list[list[int]], side: str = "right") -> Tensor:
    ids, real = batch_of(prompts, side)
    return greedy(ours, ids, n=N, real=real, end_ids=())
